"""Sessions on their way between machines: records, digests, segments, copies and withdrawals; over git in `sync`."""
