"""Runs the real worker against a simulated broker, store and clock. One seed decides everything that happens.

scheduler.py    tasks (greenlets), simulated time, processes that crash, pause and wake
primitives.py   threading, queue, concurrent.futures, time, uuid and random on that scheduler
loader.py       loads `sfd_stream` with those substitutes, with mutations and preemption points
network.py      requests and answers between a process and the broker: slow, lost, delayed, refused
broker.py       topics and logs; groups.py: the group coordinator; coordinator.py: transactions
consumer.py, producer.py, admin.py   the clients of confluent_kafka as the package sees them
store.py        a checkpoint store with faults
scenario.py     what a seed means: topics, records, settings, faults
workers.py      the real worker as a simulated process
merging.py, scoring.py   `sfd-stream merge` and `sfd-stream score`, with their laws
judge.py        the laws that are checked while it runs and at the end
run.py          one seed from beginning to end
"""
