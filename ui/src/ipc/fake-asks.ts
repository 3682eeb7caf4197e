// Asks and grants in memory, for `fake.ts`.
import type { Answer, Ask, Grant, Process, Revoked, Task } from "./client";

/** What waits and what is permitted. */
export interface FakeDesk {
  asks: Ask[];
  grants: Grant[];
  answer(id: string, digest: string, answer: Answer): void;
  revoke(id: string): Revoked;
}

const CURL: Process = {
  pid: 512,
  parent: 510,
  program: "curl",
  exe: "/usr/bin/curl",
  origin: "system",
  argv: ["curl", "-sS", "https://vectors.example.org/wal.json"],
  ancestry: [
    { pid: 510, program: "bash" },
    { pid: 7, program: "claude" },
    { pid: 1, program: "jail" },
  ],
};

let made = 0;
const id = (kind: string) => `${kind}${String(++made).padStart(7, "0")}`.replace(/[0-9]/g, (d) => "abcdefghij"[Number(d)] ?? "a");
const refuse = (code: string, message: string) => Object.assign(new Error(message), { code });

/** An open ask of the first running task, or of the task that is named. */
export function askOf(tasks: readonly Task[], more: Partial<Ask> = {}): Ask {
  const task = tasks.find((t) => (more.task === undefined ? t.state === "running" : t.id === more.task));
  const own = id("k");
  return {
    id: own,
    digest: own.repeat(8),
    task: task?.id ?? "tttttttt",
    title: task?.title ?? "Recover from a torn WAL tail",
    repository: "tideline",
    run: task?.run ?? "runaaaaa",
    what: { about: "connect", host: "vectors.example.org", port: 443 },
    process: CURL,
    rule: "network.default",
    source: "standard:14",
    reason: "no rule names it",
    opened: Date.now(),
    state: "open",
    tries: 1,
    closed: null,
    hold: 60_000,
    ...more,
  };
}

/** An empty desk, or one on which something waits. */
export function fakeDesk(waits: boolean): FakeDesk {
  const desk: FakeDesk = {
    asks: [],
    grants: [],
    answer(of, digest, answer) {
      const ask = desk.asks.find((a) => a.id === of);
      if (!ask || ask.digest !== digest) throw refuse("stale", `ask ${of} is about something else than what was shown: look again`);
      if (ask.state !== "open") throw refuse("stale", `ask ${of} was answered already: \`airlock ask show ${of}\` says how`);
      const now = Date.now();
      Object.assign(ask, { state: answer.answer === "deny" ? "denied" : "allowed", closed: now });
      if (answer.answer === "deny") return;
      const { scope, lasts } = answer;
      desk.grants.unshift({ id: id("g"), title: scope === "repo" ? null : ask.title, repository: ask.repository, what: ask.what, made: now, until: lasts === null ? null : now + lasts, left: scope === "once" ? 0 : null, used: 1, revoked: null, lives: scope !== "once" });
    },
    revoke(of) {
      const grant = desk.grants.find((g) => g.id === of);
      if (!grant) throw refuse("notfound", `there is no grant ${of}: \`airlock grant list\` shows them`);
      if (grant.revoked !== null) return { was: false, closed: 0 };
      Object.assign(grant, { revoked: Date.now(), lives: false });
      return { was: true, closed: 1 };
    },
  };
  if (waits) {
    desk.asks.push(askOf([]), askOf([], { what: { about: "connect", host: "203.0.113.9", port: 8443 }, tries: 3 }));
    desk.asks.push(askOf([], { what: { about: "connect", host: "api.example.org", port: 443 }, state: "denied", closed: Date.now() - 60_000 }));
  }
  return desk;
}
