CREATE TABLE exit (
  id TEXT PRIMARY KEY,
  task TEXT NOT NULL REFERENCES task (id),
  kind TEXT NOT NULL,
  state TEXT NOT NULL,
  body TEXT NOT NULL,
  time INTEGER NOT NULL
) STRICT;
CREATE INDEX exit_task ON exit (task, time);
