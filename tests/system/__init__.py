"""The whole way of a row, on real parts. Each trap that peers fell into (by its number in our notes) has a test:

| trap | test |
|---|---|
| 1 commit before durable | test_kills (after-manifest, before-commit), test_worker: nothing is committed before |
| 2 `on_lost` is not reliable | test_signals: stopped past its session; test_worker: fenced owner, tidying up notices |
| 3 an exception in `on_assign` | kafka/test_source; test_worker: an exception in a rebalance ends it |
| 4 cooperative needs offsets at assign | kafka/test_source; test_kills under both group protocols |
| 5 stale work after a revoke | test_worker: no commit after it, past its budget; worker/test_jobs: cancelled |
| 6 a revoke that blocks | test_outages: slow store; test_worker: past its budget lets go |
| 7 cooperative and manual commits | test_sharing, test_kills; test_worker: a commit that fails is sent again |
| 8 KIP-848: no client session timeout | test_kills, test_sharing (kip-848): the store fences |
| 9 retention overtook the offset | test_refusals: retention past the checkpoint |
| 10 waiting for the last offset hangs | test_messages: a transaction's control records, an empty topic |
| 11 seek and pause beside consume | one thread owns the consumer: worker/test_bars, test_worker |
| 12 prefetch is memory | kafka/properties; test_sharing: stays within its memory |
| 13 blocking calls and signals, `close` that hangs | test_signals; unit/test_threads: a hanging job |
| 17 BLAS threads change bits | `worker.blas_threads`, one in all runs here: test_kills compares bits |
| 19, 20 create, one's own write as conflict | storage/test_contract; worker/test_checkpoint_chain: one failed call |
| 22 the newest published blob | state/test_retention |
| 23 tombstones | test_messages |
| 24 a commit error must not end it | test_worker: a commit that fails is sent again |
| 25 commit once at claim | test_messages: an empty topic has its end at once (committed 0) |
| 26 disk checkpoints per pod | docs: all workers of a group must see the same store |
| 14 opaque group metadata | kafka/test_transactions: no member, no membership |
| 15 begin transactions late, sort their errors | kafka/ and worker/test_transactions, test_snapshot_kills |
| 16 the built-in broker accepts zombies | test_snapshot_kills, test_transactional: on a real one |

18 and 21 concern metrics and etags, which this code does not use.
"""
