"""A program that books one line of the ledger: the prompt on stdin, the reply on stdout. See provider.py."""

import re
import sys
from decimal import Decimal

balance, amount = (Decimal(each) for each in re.findall(r": (-?\d+\.\d\d)$", sys.stdin.read(), re.MULTILINE))
print(f'account = "other"\nbalance = {balance + amount}')
