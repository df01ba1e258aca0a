"""Coverage-guided fuzzing of every decoder.

    python -m tests.fuzz --minutes 5 [TARGET ...]        (make fuzz MINUTES=5)

targets.py names the decoders, what they may raise and the good inputs to start from; engine.py changes inputs, keeps
those that reach new lines, and shortens those that fail. A failing input is written to corpus/TARGET/, and test_fuzz.py
reads it from then on. `python -m tests.unit.wire.formats.fuzz` covers Avro and Protobuf in the same spirit.
"""
