"""The steps of a call of `stream` where each is a launch: copies and kernels on three streams, to be captured."""

from __future__ import annotations

from typing import Any

import numpy as np

from akx.backends.cuda.device.copies import bring_rows, send
from akx.backends.cuda.device.launch import Kernel, Mark, Stream
from akx.backends.cuda.schedules.stream.layout import BACKS, kind_of

__all__ = ["Steps"]


class Steps:
    """The steps of a call, queued on three streams: copies to the device, kernels, copies to the host."""

    def __init__(
        self,
        program: Any,  # the StreamProgram above, which makes them
        kernel: Kernel,
        vectors: int,
        at: int,
        sends: bool,
        streams: tuple[Stream, Stream, Stream],
    ) -> None:
        self.of, self.kernel, self.vectors, self.sends = program, kernel, vectors, sends
        work, self.there, self.back = streams
        self.work = work
        self.copied = program._plan.typed.move == "copy"
        self.out = at
        start = Mark(work)
        start.holds(self.there)
        start.holds(self.back)
        self.last = start
        self.returned: list[Mark] = []
        self.passes = 0

    def one_pass(self, power: int, depth: int) -> None:
        """v_{power+1} .. v_{power+depth}, from v_power and the one before it in host memory."""
        window = self.of.window
        made: list[Mark] = []
        if self.returned:  # this pass begins with what the last one returned
            self.returned[-1].holds(self.work)
        self.last.holds(self.there)
        for step in range(window.steps(depth)):
            chunk = window.arrives(step)
            if 0 <= chunk < window.chunks and (chunk >= window.kept or (self.sends and not self.passes)):
                if chunk - window.kept >= window.slots:
                    made[window.frees(chunk - window.slots, depth)].holds(self.there)
                self._send(chunk)
                Mark(self.there).holds(self.work)
            if self.copied and len(self.returned) >= BACKS:
                self.returned[-BACKS].holds(self.work)
            self._launch(step, power, depth)
            made.append(Mark(self.work))
            if self.copied:
                made[-1].holds(self.back)
                self._bring(step, power, depth)
                self.returned.append(Mark(self.back))
        self.last = made[-1]
        self.passes += 1

    def join(self) -> None:
        """Let the first stream wait for the others, so that the graph is whole."""
        Mark(self.there).holds(self.work)
        Mark(self.back).holds(self.work)

    def _send(self, chunk: int) -> None:
        window, chunks = self.of.window, self.of._chunks
        begin, end = int(chunks.begin[chunk]), int(chunks.begin[chunk + 1])
        to = self.of._slots.pointer + window.slot(chunk) * window.slot_bytes
        send(to, chunks.data.ctypes.data + begin, end - begin, self.there)

    def _launch(self, step: int, power: int, depth: int) -> None:
        window, of, b = self.of.window, self.of, self.vectors
        low, high = window.powers(step, depth)
        if low > high:
            return
        size, block = window.itemsize, of._plan.typed.block
        per = -(-window.rows * kind_of(of._plan.variant)[1] // block)
        if self.copied:
            back = of._staged.pointer + (step % BACKS * b * depth - 1) * window.rows * size
            strides = window.rows, depth * window.rows
        else:
            back = self.out + (power * b * window.pitch + step * window.rows) * size
            strides = b * window.pitch - window.lag, window.pitch
        x = self.out + power * b * window.pitch * size
        arguments = [*of.frame(b), np.uint32(power > 0)]
        arguments += [of._coefficients.view(3 * power, (depth, 3)), np.int64(step), np.uint32(low), np.uint32(per)]
        arguments += [np.uint64(x), np.uint64(x - b * window.pitch * size if power else 0), np.int64(window.pitch)]
        arguments += [np.uint64(back), *(np.int64(stride) for stride in strides)]
        self.kernel.launch((high - low + 1) * per, block, arguments, stream=self.work)

    def _bring(self, step: int, power: int, depth: int) -> None:
        window, b = self.of.window, self.vectors
        low, high = window.powers(step, depth)
        size, n, rows = window.itemsize, window.n, window.rows
        pitch, width = (b * window.pitch - window.lag) * size, rows * size
        for v in range(b):
            first = max(low, 1)
            while first <= high:
                begin = step * rows - first * window.lag
                skipped, end = max(0, -begin), min(rows, n - begin)
                last = first
                while end - skipped == rows and last < high and step * rows >= (last + 1) * window.lag:
                    last += 1  # whole in both: one copy, where the pitch can be had
                count = last - first + 1 if pitch >= width else 1
                source = ((step % window.backs * b + v) * depth + first - 1) * rows + skipped
                to = ((power + first) * b + v) * window.pitch + begin + skipped
                pointer = self.of._staged.pointer + source * size
                bring_rows(self.out + to * size, pitch, pointer, width, (end - skipped) * size, count, self.back)
                first += count
