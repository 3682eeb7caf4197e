CREATE TABLE run (
  id TEXT PRIMARY KEY,
  task TEXT NOT NULL REFERENCES task (id),
  hostname TEXT NOT NULL,
  argv TEXT NOT NULL,
  started INTEGER NOT NULL,
  ended INTEGER,
  outcome TEXT,
  report TEXT,
  log BLOB NOT NULL
) STRICT;
CREATE INDEX run_task ON run (task, started);
