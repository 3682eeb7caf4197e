CREATE TABLE permit (
  id TEXT PRIMARY KEY,
  task TEXT REFERENCES task (id),
  repo TEXT NOT NULL REFERENCES repo (id),
  what TEXT NOT NULL,
  ask TEXT,
  made INTEGER NOT NULL,
  until TEXT,
  left_over INTEGER,
  used INTEGER NOT NULL DEFAULT 0,
  revoked INTEGER
) STRICT;
CREATE INDEX permit_repo ON permit (repo, made);
