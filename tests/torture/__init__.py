"""A campaign on real parts: workers under load and random faults, checked against an independent reader of the topic.

    python -m tests.torture --minutes 5 --seed 7        (make torture MINUTES=5 SEED=7)

    parts.py      brokers, store, the connections between all parts
    programs.py   workers, scorers, merge and live reader as processes that are started again when they end
    load.py       rows and bad messages, produced without a pause
    faults.py     what is done to the parts, and the plan that a seed makes
    campaign.py   starts everything, follows the plan, drains, checks, prints the table
    truth.py      what the topics must contain, computed from the input topic without the package's decoders
    watch.py      the live reader's program

docs/reliability.md has the recorded runs.
"""
