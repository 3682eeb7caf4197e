// Every key of the window in one table: the sheet, the hints and the handlers read it.

/** Where a key acts. */
export type Where = "anywhere" | "activity" | "changes" | "inbox" | "terminal" | "dialog";

/** What a key does. */
export type Action =
  | "new" | "tab1" | "tab2" | "tab3" | "prevTask" | "nextTask" | "pause" | "region" | "sheet" | "back" | "oldestAsk"
  | "down" | "up" | "open" | "filter" | "nextDenied" | "follow" | "latest"
  | "accept" | "reject" | "view" | "prevHunk" | "nextHunk" | "marks"
  | "deny" | "once" | "longer"
  | "leave" | "copy" | "paste" | "confirm" | "close";

/** One line of the table. */
export interface Key {
  where: Where;
  action: Action;
  /** As `KeyboardEvent.key`, with modifiers in the order Ctrl, Alt, Shift. */
  keys: string[];
  words: string;
}

/** The table. */
export const KEYS: readonly Key[] = [
  { where: "anywhere", action: "new", keys: ["Ctrl+n"], words: "new task" },
  { where: "anywhere", action: "tab1", keys: ["Alt+1"], words: "Terminal" },
  { where: "anywhere", action: "tab2", keys: ["Alt+2"], words: "Activity" },
  { where: "anywhere", action: "tab3", keys: ["Alt+3"], words: "Changes" },
  { where: "anywhere", action: "prevTask", keys: ["Alt+ArrowUp"], words: "task above" },
  { where: "anywhere", action: "nextTask", keys: ["Alt+ArrowDown"], words: "task below" },
  { where: "anywhere", action: "pause", keys: ["Alt+p"], words: "pause, continue" },
  { where: "anywhere", action: "oldestAsk", keys: ["a"], words: "oldest ask" },
  { where: "anywhere", action: "region", keys: ["F6"], words: "next region" },
  { where: "anywhere", action: "sheet", keys: ["?"], words: "all keys" },
  { where: "anywhere", action: "back", keys: ["Escape"], words: "back" },
  { where: "activity", action: "down", keys: ["j", "ArrowDown"], words: "next event" },
  { where: "activity", action: "up", keys: ["k", "ArrowUp"], words: "event before" },
  { where: "activity", action: "open", keys: ["Enter"], words: "details" },
  { where: "activity", action: "filter", keys: ["/"], words: "filter" },
  { where: "activity", action: "nextDenied", keys: ["d"], words: "next denied" },
  { where: "activity", action: "follow", keys: [" "], words: "follow" },
  { where: "activity", action: "latest", keys: ["End"], words: "latest" },
  { where: "changes", action: "down", keys: ["j", "ArrowDown"], words: "next file" },
  { where: "changes", action: "up", keys: ["k", "ArrowUp"], words: "file before" },
  { where: "changes", action: "accept", keys: ["y"], words: "accept file" },
  { where: "changes", action: "reject", keys: ["n"], words: "reject file" },
  { where: "changes", action: "nextHunk", keys: ["]"], words: "next hunk" },
  { where: "changes", action: "prevHunk", keys: ["["], words: "hunk before" },
  { where: "changes", action: "view", keys: ["v"], words: "unified, split" },
  { where: "changes", action: "marks", keys: ["x"], words: "only marked files" },
  { where: "changes", action: "filter", keys: ["/"], words: "filter files" },
  { where: "inbox", action: "down", keys: ["j", "ArrowDown"], words: "next ask" },
  { where: "inbox", action: "up", keys: ["k", "ArrowUp"], words: "ask before" },
  { where: "inbox", action: "deny", keys: ["d"], words: "deny" },
  { where: "inbox", action: "once", keys: ["o"], words: "allow once" },
  { where: "inbox", action: "longer", keys: ["f"], words: "allow for longer" },
  { where: "terminal", action: "leave", keys: ["Ctrl+Shift+Escape"], words: "back to Airlock" },
  { where: "terminal", action: "copy", keys: ["Ctrl+Shift+C"], words: "copy" },
  { where: "terminal", action: "paste", keys: ["Ctrl+Shift+V"], words: "paste" },
  { where: "dialog", action: "confirm", keys: ["Ctrl+Enter"], words: "start, apply" },
  { where: "dialog", action: "close", keys: ["Escape"], words: "close" },
];

/** The name of a pressed key in the table's form. */
export function chord(e: KeyboardEvent): string {
  // A printed sign such as `?` already contains its Shift.
  const sign = e.key.length === 1 && !/[a-z]/i.test(e.key);
  const letter = e.key.length === 1 && /[a-z]/i.test(e.key);
  let out = "";
  if (e.ctrlKey) out += "Ctrl+";
  if (e.altKey) out += "Alt+";
  if (e.shiftKey && !sign && (!letter || e.ctrlKey || e.altKey)) out += "Shift+";
  return out + (letter && e.ctrlKey && e.shiftKey ? e.key.toUpperCase() : letter && !e.shiftKey ? e.key.toLowerCase() : e.key);
}

/** What a pressed key means in a place, if anything. */
export function actionOf(where: Where, e: KeyboardEvent): Action | null {
  const pressed = chord(e);
  return KEYS.find((k) => k.where === where && k.keys.includes(pressed))?.action ?? null;
}

const LABELS: Record<string, string> = { ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc", " ": "Space" };

/** A chord as the person reads it. */
export function label(keys: string): string {
  return keys
    .split("+")
    .map((k) => LABELS[k] ?? (k.length === 1 ? k.toUpperCase() : k))
    .join(" ");
}

/** Whether the person is typing, so that single letters are theirs. */
export function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
