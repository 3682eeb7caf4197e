CREATE TABLE event (
  seq INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  body TEXT NOT NULL
) STRICT;
CREATE INDEX event_kind ON event (kind, seq);
