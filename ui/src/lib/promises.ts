// What each guarantee of the jail's report means for the person.

const WORDS: Record<string, string> = {
  writes: "Writes only its workspace, its own home and /tmp",
  reads: "Can’t read your home, other tasks or credentials",
  control: "Reaches no process, socket or display outside",
  network: "No network but through the warden",
  syscalls: "Makes no system call outside the list",
  landlock: "A second lock on files, should the first have a hole",
  processes: "Has no more processes than the policy says",
  open_files: "No process opens more files than the policy says",
  wall: "Ends when its time is over",
  memory: "Uses no more memory than the policy says",
  cpu: "Uses no more CPU than the policy says",
  disk: "Fills no more disk than the policy says",
  bytes: "Sends and receives no more than the policy says",
  output: "What it prints fills no disk",
  quotas: "Uses up no kernel table that it shares with you",
  decoys: "A touch of a hidden place is refused and told",
  events: "Programs, connections and writes are told",
};

/** The sentence of a guarantee; its name where it has none here. */
export function promiseWords(name: string): string {
  return WORDS[name] ?? name;
}
