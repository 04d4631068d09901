"""operate — what people and programs do with the queue: one implementation under the command line and HTTP

Owns: looking at queued, held and finished mail, and every change that an operator or a reviewer makes to it.
Guarantees: nothing here reads a command line or prints. What is done acts for the principal of its connection
    (shared/postgres/acting.py); results have the forms of shapes/; errors are PillarboxError, one clear line.
"""
