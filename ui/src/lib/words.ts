// The words and glyphs of states, events, verdicts and marks. A colour never stands alone.
import type { Event, Mark, Origin, Outcome, Task, TaskState, Verdict } from "../ipc/client";
import type { IconName } from "./icons";
import { ago, plural, size } from "./time";

/** A state, verdict or kind as it is shown. */
export interface Shown {
  icon: IconName;
  word: string;
  tone: "" | "acc" | "ok" | "warn" | "bad";
}

const STATES: Record<TaskState, Shown> = {
  ready: { icon: "ring", word: "Ready", tone: "" },
  running: { icon: "run", word: "Running", tone: "acc" },
  ended: { icon: "eye", word: "Ready to review", tone: "" },
  applied: { icon: "apply", word: "Applied", tone: "ok" },
  failed: { icon: "warn", word: "Failed", tone: "bad" },
  discarded: { icon: "trash", word: "Discarded", tone: "" },
};

const PAUSED: Shown = { icon: "hold", word: "Paused", tone: "warn" };

/** A task's state. */
export function stateOf(task: Pick<Task, "state" | "paused">): Shown {
  return task.paused !== null ? PAUSED : STATES[task.state];
}

/** The line under a task's title in the rail. */
export function taskLine(task: Task, now: number): string {
  const parts = [stateOf(task).word];
  if (task.state === "failed" && task.problem) parts.push(task.problem.split("\n")[0] ?? "");
  else {
    parts.push(ago(now - task.created));
    parts.push(agentOf(task));
  }
  return parts.join(" · ");
}

/** Who works on the task. */
export function agentOf(task: Task): string {
  if (task.agent === "claude-code") return "Claude Code";
  if (task.agent === "shell") return "Shell";
  return task.agent ?? task.argv[0]?.split("/").pop() ?? "command";
}

/** How a run ended. */
export function outcomeWords(o: Outcome | null): string {
  if (o === null) return "ended";
  if (o.refused !== null) return `refused: ${o.refused}`;
  if (o.limit !== null) return `ended by the limit “${o.limit}”`;
  if (o.signal !== null) return `ended by signal ${o.signal}`;
  return `ended with ${o.exit ?? "no exit code"}`;
}

const VERDICTS: Record<Verdict, Shown> = {
  allowed: { icon: "check", word: "Allowed", tone: "" },
  denied: { icon: "deny", word: "Denied", tone: "bad" },
  held: { icon: "hold", word: "Held", tone: "warn" },
  noted: { icon: "info", word: "Noted", tone: "" },
};

/** An event's verdict; none for the end of a process. */
export function verdictOf(e: Event): Verdict | null {
  switch (e.what.kind) {
    case "file":
    case "network":
      return e.what.verdict;
    case "decision":
      return e.what.verdict;
    case "ask":
      return "held";
    case "process":
      return e.what.op === "exec" ? "allowed" : null;
    default:
      return "noted";
  }
}

/** How a verdict is shown. */
export function verdictShown(v: Verdict): Shown {
  return VERDICTS[v];
}

/** The rule that an event names. */
export function ruleOf(e: Event): string {
  switch (e.what.kind) {
    case "file":
    case "network":
    case "ask":
      return e.what.rule;
    case "decision":
      return e.what.grant === null ? "" : `grant ${e.what.grant}`;
    case "limit":
      return `limits.${e.what.limit}`;
    default:
      return e.what.kind === "lifecycle" ? "lifecycle" : "";
  }
}

const FILE: Record<string, [IconName, string]> = {
  read: ["read", "read"],
  write: ["pen", "open to write"],
  create: ["new", "created"],
  change: ["pen", "wrote"],
  rename: ["ren", "renamed"],
  delete: ["trash", "deleted"],
};
const NET: Record<string, string> = { lookup: "look up", connect: "connect", close: "closed", bind: "listen" };

/** One row's glyph, verb and object; `path` says that the object is in the escaped form. */
export function whatOf(e: Event): { icon: IconName; verb: string; object: string; path: boolean; to: string | null; tail: string; failed: boolean } {
  const w = e.what;
  const many = e.count > 1 ? `${plural(e.count, "time")}` : "";
  switch (w.kind) {
    case "file": {
      const [icon, verb] = FILE[w.op] ?? ["file", w.op];
      return { icon: many ? "stack" : icon, verb, object: w.path, path: true, to: w.to, tail: many, failed: false };
    }
    case "process": {
      if (w.op === "exec")
        return { icon: "exec", verb: "exec", object: e.process?.argv.join(" ") || e.process?.exe || "", path: true, to: null, tail: many, failed: false };
      const bad = w.status !== null && w.status !== 0;
      return { icon: "exit", verb: "exit", object: w.status === null ? "" : String(w.status), path: false, to: null, tail: many, failed: bad };
    }
    case "network": {
      const where = w.host || w.address || "";
      if (w.http) {
        const tail = [w.http.status === null ? "" : `${w.http.status} in ${w.http.millis} ms`, many].filter(Boolean).join(" · ");
        return { icon: many ? "stack" : "net", verb: w.http.method, object: `${where}${w.port === 443 ? "" : `:${w.port}`}${w.http.path}`, path: false, to: null, tail, failed: (w.http.status ?? 0) >= 400 };
      }
      const tail = [w.host && w.address ? w.address : "", w.op === "close" ? `${size(w.sent)} out, ${size(w.received)} in` : "", many].filter(Boolean).join(" · ");
      return { icon: many ? "stack" : "net", verb: NET[w.op] ?? w.op, object: w.port ? `${where}:${w.port}` : where, path: false, to: null, tail, failed: false };
    }
    case "ask":
      return { icon: "inbox", verb: "asks for", object: w.about, path: false, to: null, tail: many, failed: false };
    case "decision":
      return { icon: VERDICTS[w.verdict].icon, verb: w.ask === null ? "grant ended" : "your answer", object: w.about, path: false, to: null, tail: w.detail, failed: false };
    case "limit":
      return { icon: "gauge", verb: w.limit, object: w.detail, path: false, to: null, tail: many, failed: false };
    case "lifecycle":
      return { icon: "info", verb: w.phase, object: w.detail, path: false, to: null, tail: many, failed: false };
  }
}

/** Words that a filter searches in. */
export function haystack(e: Event): string {
  const w = whatOf(e);
  return [w.verb, w.object, w.to ?? "", w.tail, e.process?.program ?? "", e.process?.pid ?? "", ruleOf(e)].join(" ").toLowerCase();
}

const MARKS: Record<Mark, { word: string; why: string; risk: boolean }> = {
  ci: { word: "CI", why: "Runs in CI.", risk: true },
  runs: { word: "runs", why: "Can run on your machine: a hook, an editor task, a package or build script.", risk: true },
  lockfile: { word: "lockfile", why: "Decides what is downloaded.", risk: true },
  executable: { word: "executable", why: "Has the executable bit.", risk: true },
  symlink: { word: "link", why: "Is a symbolic link.", risk: false },
  escapes: { word: "leads out", why: "Is a symbolic link that leads out of the repository.", risk: true },
  binary: { word: "binary", why: "Has no line diff.", risk: false },
  bidi: { word: "hides text", why: "Holds characters that hide or reorder text.", risk: true },
};

/** A mark's word and why it matters. */
export function markOf(m: Mark): { word: string; why: string; risk: boolean } {
  return MARKS[m];
}

const ORIGINS: Record<Origin, string> = {
  system: "a system program",
  tool: "a tool of your home, brought in by the policy",
  task: "written by this task",
  unknown: "of unknown origin",
};

/** Where an executable is from. */
export function originOf(o: Origin): string {
  return ORIGINS[o];
}
