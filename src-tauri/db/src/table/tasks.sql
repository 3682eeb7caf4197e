CREATE TABLE task (
  id TEXT PRIMARY KEY,
  repo TEXT NOT NULL REFERENCES repo (id),
  title TEXT NOT NULL,
  prompt TEXT NOT NULL,
  branch TEXT NOT NULL,
  base TEXT NOT NULL,
  base_branch TEXT,
  agent TEXT,
  argv TEXT NOT NULL,
  policy TEXT NOT NULL,
  state TEXT NOT NULL,
  problem TEXT,
  created INTEGER NOT NULL,
  last_run TEXT,
  history TEXT NOT NULL DEFAULT '[]',
  policy_text TEXT
) STRICT;
CREATE INDEX task_repo ON task (repo, created);
