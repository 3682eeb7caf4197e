// The same interface in memory: for tests, and for work on the window in a browser.
import { askOf, fakeDesk, type FakeDesk } from "./fake-asks";
import type { Ask, Client, Event, EventBatch, FileDecision, Changes, ChangedFile, Cure, Kept, Overview, Repo, Row, Run, Span, Task, TerminalSink, What, Process } from "./client";

/** A refusal as the Rust side sends it. */
function refuse(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

const BASE = "4f1c9e2a7b5d3c1e9f8a6b4d2c0e1f3a5b7c9d8e";
const TREE = "9d41c7a40be19d41c7a40be19d41c7a40be19d41";
const START = Date.now() - 41 * 60_000;

/** The table of a run whose person accepted the loss of the network's promise. */
export const PROMISES: Kept[] = [
  kept(1, "It writes only its workspace, its private home, caches and /tmp", "own mount namespace + Landlock ABI 7"),
  kept(2, "It can't open your home, other repositories, other tasks or credentials", "own root + Landlock ABI 7"),
  kept(4, "It reaches no network but through the warden", "", "absent", "no way out, so nothing is reached: no nf_tables", true),
  kept(6, "It can't reach what controls it", "own namespaces + seccomp: 383 calls listed"),
  {
    ...kept(8, "A runaway is stopped", "RLIMIT_NPROC + the warden's clock", "partial", "memory: no cgroup was delegated"),
    rows: [
      { name: "processes", how: "RLIMIT_NPROC", level: "full", reason: "" },
      { name: "memory", how: "", level: "absent", reason: "no cgroup was delegated" },
    ],
  },
];

function kept(number: number, title: string, how: string, level: Kept["level"] = "full", reason = "", accepted = false): Kept {
  return { number, title, how, level, reason, accepted, rows: level === "full" ? [] : [{ name: "guarantee", how, level, reason }] };
}

const CURES: Cure[] = [{ at: "network", what: "no way out", why: "nf_tables is not loaded", command: "sudo modprobe nft_tproxy", accept: "network" }];

/** Names and texts that try to act; every view has to draw them as text. */
export const HOSTILE = {
  path: "docs/no\\xe2\\x80\\xaedm.set",
  markup: "<img src=x onerror=alert(1)>.rs",
  title: "<b>bold</b> \u202Egnp.exe",
  argv: "printf '\\x1b]52;c;aGk=\\x07'",
  code: "let x = \u2066/* <script>alert(1)</script> */;",
};

function repo(id: string, name: string): Repo {
  return { id, name, path: `/home/you/${name}` };
}

function task(id: string, of: string, title: string, state: Task["state"], more: Partial<Task> = {}): Task {
  return {
    id,
    repo: of,
    title,
    prompt: "Recover what a torn tail left. Don’t change the on-disk format.",
    branch: title.toLowerCase().replace(/[^a-z0-9]+/g, "-"),
    base: BASE,
    baseBranch: "main",
    agent: "claude-code",
    argv: ["claude"],
    policy: "standard",
    state,
    problem: null,
    created: START,
    run: state === "ready" ? null : `run${id}`.slice(0, 8),
    paused: null,
    ...more,
  };
}

function process(pid: number, program: string, argv: string[], ancestry: [number, string][] = [[7, "claude"], [1, "jail"]]): Process {
  return { pid, parent: ancestry[0]?.[0] ?? 1, program, exe: `/usr/bin/${program}`, origin: "system", argv, ancestry: ancestry.map(([p, n]) => ({ pid: p, program: n })) };
}

function events(runId: string): Event[] {
  const python = process(353, "python3", ["python3", "tools/fixtures.py", "--all"], [[352, "bash"], [7, "claude"], [1, "jail"]]);
  const claude = process(7, "claude", ["claude"], [[1, "jail"]]);
  const file = (op: "read" | "write" | "create" | "change" | "rename" | "delete", path: string, verdict: "allowed" | "denied" = "allowed", to: string | null = null): What => ({ kind: "file", op, path, to, verdict, rule: verdict === "denied" ? "files.hide[0]" : "files.write" });
  const net = (op: "lookup" | "connect" | "close", host: string, verdict: "allowed" | "denied", reason: string, address: string | null = null): What => ({ kind: "network", op, host, address, port: op === "lookup" ? 0 : 443, verdict, rule: verdict === "denied" ? "network.default" : "network.rule[0]", reason, sent: op === "close" ? 20_480 : 0, received: op === "close" ? 1_258_291 : 0, http: null, carried: op === "close" ? { mode: "tunnel", millis: 2_310 } : null });
  const list: [Process | null, What, number?][] = [
    [null, { kind: "lifecycle", phase: "started", detail: "claude --continue" }],
    [claude, net("connect", "api.anthropic.com", "allowed", "the agent’s model", "203.0.113.7:443")],
    [process(312, "bash", ["bash", "-lc", "cargo test -p wal torn"]), { kind: "process", op: "exec", status: null }],
    [process(313, "cargo", ["cargo", "test", "-p", "wal", "torn"]), { kind: "process", op: "exec", status: null }],
    [process(313, "cargo", []), file("change", "target/debug/incremental"), 312],
    [process(331, "rustc", []), { kind: "process", op: "exit", status: 0 }],
    [process(340, "torn_tail-9c1e", []), { kind: "process", op: "exit", status: 101 }],
    [claude, file("change", "src/wal/recover.rs")],
    [python, { kind: "process", op: "exec", status: null }],
    [python, file("read", "/home/you/.ssh/id_ed25519", "denied")],
    [python, net("lookup", "collect.telemetry.example.org", "denied", "no rule names it")],
    [python, file("create", HOSTILE.path)],
    [python, file("create", HOSTILE.markup)],
    [process(402, "bash", ["bash", "-c", HOSTILE.argv]), { kind: "process", op: "exec", status: null }],
    [claude, file("rename", "replay.ts.tmp", "allowed", "replay.ts")],
    [claude, file("delete", "clients/ts/src/replay.old.ts")],
    [claude, net("close", "api.anthropic.com", "allowed", "the agent’s model", "203.0.113.7:443")],
    [claude, { kind: "network", op: "connect", host: "vectors.example.org", address: null, port: 443, verdict: "held", rule: "network.default", reason: "", sent: 0, received: 0, http: null, carried: null }],
    [claude, { kind: "ask", ask: "kkkkkkkk", about: "vectors.example.org:443", rule: "network.default" }],
    [null, { kind: "decision", ask: "kkkkkkkk", grant: "gggggggg", about: "vectors.example.org:443", verdict: "allowed", detail: "allowed for the task, for 1800 s" }],
    [null, { kind: "limit", limit: "processes", detail: "1,024 of 1,024 processes" }],
  ];
  return list.map(([p, what, count], i) => ({ seq: i + 1, time: START + i * 1377, run: runId, count: count ?? 1, process: p, what }));
}

function changedFile(path: string, added: number, removed: number, more: Partial<ChangedFile> = {}): ChangedFile {
  return { path, oldPath: null, kind: removed === 0 && added > 0 ? "added" : "modified", oldMode: 0o100644, newMode: 0o100644, added, removed, binary: false, marks: [], ...more };
}

const FILES: ChangedFile[] = [
  changedFile(".github/workflows/ci.yml", 6, 1, { marks: ["ci"] }),
  changedFile("clients/ts/package.json", 1, 1, { marks: ["runs"] }),
  changedFile("clients/ts/src/replay.ts", 22, 14),
  changedFile(HOSTILE.path, 12, 0, { marks: ["bidi"] }),
  changedFile(HOSTILE.markup, 3, 0),
  changedFile("src/wal/recover.rs", 31, 9),
  changedFile("tests/fixtures/torn.bin", 0, 0, { kind: "added", binary: true, marks: ["binary"] }),
  changedFile("tools/fixtures.py", 18, 0, { kind: "added", marks: ["executable"] }),
  changedFile("Cargo.lock", 14, 2, { kind: "modified", marks: ["lockfile"] }),
];

const s = (text: string, cls: Span["class"] = "text", word = false): Span => ({ text, class: cls, word });

function rows(): Row[] {
  const row = (kind: Row["kind"], old: number | null, now: number | null, spans: Span[], pair: number | null = null, hunk = 0): Row => ({ kind, old, new: now, hunk, pair, spans });
  return [
    row("hunk", null, null, [s("@@ -41,4 +41,4 @@ impl Wal")]),
    row("context", 41, 41, [s("    "), s("pub fn", "kw"), s(" "), s("open", "fn"), s("(dir: &"), s("Path", "ty"), s(", opts: "), s("Options", "ty"), s(") -> "), s("Result", "ty"), s("<Self, WalError> {")]),
    row("context", 42, 42, [s("        "), s("let", "kw"), s(" segments = Segment::list(dir)?;")]),
    row("del", 43, null, [s("        "), s("let", "kw"), s(" last = segments.last()"), s(".cloned()", "text", true), s(";")], 4),
    row("add", null, 43, [s("        "), s("let", "kw"), s(" last = segments.last()"), s(".map(|s| s.keep_torn(&opts)).transpose()?", "text", true), s(";")], 3),
    row("context", 44, 44, [s("        Ok(Self { segments, last, opts })")]),
    row("hunk", null, null, [s("@@ -89,9 +89,9 @@ impl Segment")], null, 1),
    row("del", 91, null, [s("        "), s("while", "kw"), s(" at < self.len() {")], null, 1),
    row("add", null, 95, [s("        "), s("loop", "kw"), s(" {")], null, 1),
    row("add", null, 96, [s("            "), s("eprintln!", "mac"), s("("), s('"torn tail at {at}"', "str"), s(");")], null, 1),
    row("add", null, 97, [s("            "), s("// keep the bytes", "com")], null, 1),
    row("add", null, 98, [s(HOSTILE.code)], null, 1),
    row("add", null, 99, [s("x"), s("\\u{202e}", "esc"), s("y "), s("1", "num")], null, 1),
    row("note", null, null, [s("No newline at end of file")], null, 1),
  ];
}

/** What a test may look at or push. */
export interface Fake extends Client {
  /** Opens an ask of the first running task, or of the task that is named, and tells the window. */
  ask(more?: Partial<Ask>): Ask;
  /** Changes asks and grants and tells the window. */
  putAsks(change: (desk: FakeDesk) => void): void;
  /** Every call, with its arguments. */
  calls: [string, ...unknown[]][];
  /** Makes the next call of that name fail. */
  failNext(name: keyof Client, code: string, message: string): void;
  /** Sends events to an open Activity view. */
  pushEvents(batch: EventBatch): void;
  /** Changes tasks or repositories and tells the window. */
  put(change: (o: Overview) => void): void;
}

/** A client with four repositories and a task of each state, or with nothing; with or without something that waits. */
export function fakeClient(empty = false, waits = false): Fake {
  const state: Overview = empty
    ? { repos: [], tasks: [] }
    : {
        repos: [repo("aaaaaaaa", "tideline"), repo("bbbbbbbb", "harbor-web"), repo("cccccccc", "field-notes"), repo("dddddddd", "probe-kit")],
        tasks: [
          task("tttttttt", "aaaaaaaa", "Recover from a torn WAL tail", "running"),
          task("uuuuuuuu", "aaaaaaaa", "Drop the v1 segment reader", "ended", { created: START - 3_600_000 }),
          task("vvvvvvvv", "aaaaaaaa", "Bound compaction memory", "applied", { created: START - 7_200_000 }),
          task("wwwwwwww", "bbbbbbbb", HOSTILE.title, "ready"),
          task("xxxxxxxx", "bbbbbbbb", "Type the billing client", "failed", { problem: "claude: exit 127" }),
          task("yyyyyyyy", "cccccccc", "Check links in the guides", "failed", { problem: "network: `network` can’t be kept in full: user namespaces are off (airlock doctor says what to do)" }),
        ],
      };
  const decisions = new Map<string, FileDecision>();
  const watchers = new Set<() => void>();
  const feeds = new Set<(b: EventBatch) => void>();
  const calls: [string, ...unknown[]][] = [];
  const fails = new Map<string, Error>();
  const onto = new Map<string, string>([["vvvvvvvv", "main"]]);
  const changed = () => watchers.forEach((w) => w());
  const find = (id: string) => {
    const t = state.tasks.find((x) => x.id === id);
    if (!t) throw refuse("notfound", `there is no task ${id}`);
    return t;
  };
  const review = () => ({ tree: TREE, files: FILES.map((f) => ({ path: f.path, decision: decisions.get(f.path) ?? ("open" as const), changedSince: false })), result: TREE.split("").reverse().join(""), approved: false });
  const desk = fakeDesk(waits && !empty);
  async function run<T>(name: keyof Client, args: unknown[], work: () => T): Promise<T> {
    calls.push([name, ...args]);
    await Promise.resolve();
    const fail = fails.get(name);
    if (fail) {
      fails.delete(name);
      throw fail;
    }
    return structuredClone(work());
  }
  const runs = (t: Task): Run[] =>
    t.run === null ? [] : [{ id: t.run, hostname: "airlock-k3f9w2ab", argv: t.argv, started: START, ended: t.state === "running" ? null : START + 2_467_000, outcome: t.state === "running" ? null : { exit: 0, signal: null, limit: null, refused: t.state === "failed" ? t.problem : null }, promises: t.state === "failed" ? [] : PROMISES, caches: t.state === "failed" ? [] : [{ name: "cargo", shown: true, reason: "" }, { name: "npm", shown: false, reason: "the copy is still being made" }] }];
  const add = (title: string, repoId: string, more: Partial<Task> = {}) => {
    const t = task(Math.random().toString(36).slice(2, 10).padEnd(8, "a"), repoId, title, "running", { created: Date.now(), ...more });
    state.tasks.push(t);
    changed();
    return t;
  };

  return {
    calls,
    ask(more) {
      const made = askOf(state.tasks, more);
      desk.asks.push(made);
      changed();
      return made;
    },
    putAsks(change) {
      change(desk);
      changed();
    },
    asks: (since) => run("asks", [since], () => desk.asks.filter((a) => a.state === "open" || (a.closed ?? 0) >= since)),
    answer: (id, digest, answer) =>
      run("answer", [id, digest, answer], () => {
        desk.answer(id, digest, answer);
        changed();
      }),
    grants: () => run("grants", [], () => desk.grants),
    revoke: (id) =>
      run("revoke", [id], () => {
        const done = desk.revoke(id);
        changed();
        return done;
      }),
    failNext: (name, code, message) => void fails.set(name, refuse(code, message)),
    pushEvents: (batch) => feeds.forEach((f) => f(batch)),
    put(change) {
      change(state);
      changed();
    },
    overview: () => run("overview", [], () => state),
    watch(w) {
      watchers.add(w);
      return () => watchers.delete(w);
    },
    machine: () => run("machine", [], () => ({ promises: PROMISES, refuses: null, cures: CURES })),
    addRepo: (path) =>
      run("addRepo", [path], () => {
        if (path.includes("nothing")) throw refuse("usage", `${path} is not a git repository: run \`git init\` there, or choose another folder`);
        const r = repo(`r${state.repos.length}aaaaaa`, path.split("/").pop() ?? path);
        state.repos.push(r);
        changed();
        return r;
      }),
    branches: (id) => run("branches", [id], () => [{ name: "main", checkedOut: true }, { name: "release/2.4", checkedOut: false }]),
    kits: () => run("kits", [], () => [{ id: "claude-code", name: "Claude Code", found: true, detail: "/home/you/.local/bin/claude" }, { id: "shell", name: "Shell", found: true, detail: "/bin/bash" }]),
    policies: () => run("policies", [], () => ["offline", "standard"]),
    policy: (name, agent) =>
      run("policy", [name, agent], () => ({
        name,
        words: [
          `Policy ${name}`,
          "Files: the workspace, a private home and a private /tmp can be written; the system can be read.",
          "Tools of your home: those in known install places, read-only.",
          "Not there: your home and all in it but the tools; named: ~/.ssh, ~/.aws, ~/.gnupg. A touch of these is refused and told.",
          `Network by ${name}: 1 rules; everything else is refused and shown, as nobody can be asked yet.`,
          "  allow api.anthropic.com on port 443: the agent’s model",
          "Limits: 1024 processes, 4h in all, 700 open files a process, 1GiB of output kept.",
        ],
      })),
    task: (id) => run("task", [id], () => ({ task: find(id), runs: runs(find(id)), appliedOnto: onto.get(id) ?? null })),
    create: (t, progress) =>
      run("create", [t], () => {
        progress("Copying history");
        return add(t.title ?? t.prompt.split("\n")[0] ?? "Task", t.repo, { agent: t.agent, argv: t.command ? ["sh", "-c", t.command] : ["claude"] });
      }),
    launch: (id, what) =>
      run("launch", [id, what], () => {
        Object.assign(find(id), { state: "running", run: `r${Date.now()}`.slice(0, 8) });
        changed();
      }),
    demo: (progress) =>
      run("demo", [], () => {
        progress("Making the repository");
        if (!state.repos.some((r) => r.name === "airlock-demo")) state.repos.push(repo("eeeeeeee", "airlock-demo"));
        return add("Demo", "eeeeeeee", { agent: null, argv: ["sh", "agent.sh"] });
      }),
    pause: (id) =>
      run("pause", [id], () => {
        find(id).paused = "person";
        changed();
      }),
    proceed: (id) =>
      run("proceed", [id], () => {
        find(id).paused = null;
        changed();
      }),
    ports: (id) => run("ports", [id], () => [5173, 3000]),
    preview: (id, port) => run("preview", [id, port], () => `http://${id}.localhost:40001/?airlock=${"0".repeat(32)}`),
    browse: (id, port) => run("browse", [id, port], () => undefined),
    stop: (id) =>
      run("stop", [id], () => {
        Object.assign(find(id), { state: "ended", paused: null });
        changed();
      }),
    discard: (id) =>
      run("discard", [id], () => {
        state.tasks = state.tasks.filter((t) => t.id !== id);
        changed();
      }),
    events(id, from, batch) {
      calls.push(["events", id, from]);
      let open = true;
      queueMicrotask(() => open && batch({ events: events("runaaaaa"), caughtUp: true }));
      const feed = (b: EventBatch) => open && batch(b);
      feeds.add(feed);
      return () => {
        open = false;
        feeds.delete(feed);
      };
    },
    terminal(id, cols, rows, sink: TerminalSink) {
      return run("terminal", [id, cols, rows], () => undefined).then(() => {
        const say = (text: string) => sink.output(new TextEncoder().encode(text));
        say("\x1b[1msession 3\x1b[0m · torn-wal-tail\r\n\r\n\x1b[32m●\x1b[0m \x1b[1mBash\x1b[0m(cargo test -p wal torn)\r\n  test torn_bytes_are_kept ... \x1b[31mFAILED\x1b[0m\r\n\x1b[38;2;255;136;0mtrue colour\x1b[0m \x1b[38;5;45m256\x1b[0m\r\n$ ");
        if (find(id).state !== "running") sink.ended({ exit: 0, signal: null, limit: null, refused: null });
        return {
          input: (bytes) => {
            calls.push(["terminal.input", new TextDecoder().decode(bytes)]);
            say(new TextDecoder().decode(bytes).replace(/\r/g, "\r\n$ "));
          },
          resize: (c, r) => void calls.push(["terminal.resize", c, r]),
          drawn: (n) => void calls.push(["terminal.drawn", n]),
          close: () => void calls.push(["terminal.close"]),
        };
      });
    },
    look: (id) => run("look", [id], (): Changes => (find(id).state === "ready" ? { tree: TREE, still: true, leftOut: [], files: [], review: { ...review(), files: [] } } : { tree: TREE, still: true, leftOut: [{ path: "tmp/pipe", reason: "a FIFO" }], files: FILES, review: review() })),
    fileDiff: (id, tree, path) =>
      run("fileDiff", [id, tree, path], () => {
        const file = FILES.find((f) => f.path === path);
        if (!file) throw refuse("notfound", "no such file");
        return { file, rows: file.binary ? [] : rows(), oldSize: 0, newSize: 4096, note: file.binary ? "Binary content." : null };
      }),
    decide: (id, tree, accept, reject) =>
      run("decide", [id, tree, accept, reject], () => {
        accept.forEach((p) => decisions.set(p, "accepted"));
        reject.forEach((p) => decisions.set(p, "rejected"));
        return review();
      }),
    apply: (id, tree, result, branch, message) =>
      run("apply", [id, tree, result, branch, message], () => {
        find(id).state = "applied";
        onto.set(id, branch);
        changed();
        return { branch, old: BASE, new: TREE, files: 3, workingCopy: true };
      }),
    undo: (id) =>
      run("undo", [id], () => {
        find(id).state = "ended";
        onto.delete(id);
        changed();
        return { branch: "main", old: TREE, new: BASE, files: 3, workingCopy: true };
      }),
  };
}
