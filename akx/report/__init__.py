"""What akx says to people: tables, pictures, one-file HTML pages, and the comparisons and checks behind them."""
