CREATE TABLE ask (
  id TEXT PRIMARY KEY,
  task TEXT NOT NULL REFERENCES task (id),
  run TEXT NOT NULL,
  what TEXT NOT NULL,
  process TEXT,
  rule TEXT NOT NULL,
  source TEXT NOT NULL,
  reason TEXT NOT NULL,
  opened INTEGER NOT NULL,
  state TEXT NOT NULL,
  tries INTEGER NOT NULL,
  closed INTEGER,
  permit TEXT
) STRICT;
CREATE INDEX ask_task ON ask (task, opened);
CREATE INDEX ask_open ON ask (state) WHERE state = 'open';
