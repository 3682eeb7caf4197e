// A guest in QEMU, and the channels by which it runs scripts as root and as a person in their own systemd session.
import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createConnection } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const COLUMNS = ['root', 'user']
const AT_ONCE = 2
const BOOT_MS = 300_000

/** How a script in the guest ended: `code` 124 where its time was over, null where the guest is gone. */
export class Guest {
  #qemu
  #dir
  #idle = new Map()
  #waiting = new Map(COLUMNS.map((column) => [column, []]))
  #sockets = []
  #next = 1
  /** Where the console's words are kept. */
  log

  /**
   * Boots and waits until every channel says that it is ready.
   * @param {{images: object, payload: string, logs: string, name: string, kernelWords?: string[], memory?: string}} options
   */
  static async boot({ images, payload, logs, name, kernelWords = [], memory = '3G' }) {
    const guest = new Guest()
    const start = Date.now()
    mkdirSync(logs, { recursive: true })
    guest.log = join(logs, `${name}.console`)
    guest.#dir = mkdtempSync(join(tmpdir(), 'airlock-machine-'))
    const channels = COLUMNS.flatMap((column) => Array.from({ length: AT_ONCE }, (_, n) => ({ column, name: `airlock.${column}${n}`, socket: join(guest.#dir, `${column}${n}`) })))
    const disk = (file, id) => ['-drive', `if=none,id=${id},format=raw,file=${file},snapshot=on`, '-device', `virtio-blk-pci,drive=${id}`]
    const words = [
      ['-machine', 'pc', '-accel', 'tcg,thread=multi', '-cpu', 'max', '-smp', '2', '-m', memory],
      ['-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot', '-nic', 'none'],
      ['-kernel', images.kernel, '-initrd', images.initramfs, '-append', ['console=ttyS0', 'panic=-1', 'oops=panic', 'quiet', ...kernelWords].join(' ')],
      ['-serial', `file:${guest.log}`],
      disk(images.root, 'root'),
      disk(payload, 'run'),
      // Once more, as the root of containers.
      disk(images.root, 'container'),
      ['-device', 'virtio-rng-pci', '-device', 'virtio-serial-pci'],
      ...channels.map(({ name, socket }) => ['-chardev', `socket,id=${name},path=${socket},server=on,wait=off`, '-device', `virtserialport,chardev=${name},name=${name}`]),
    ].flat()
    // What the guest writes goes to files that only this process ever sees.
    // It ends with this process, however that ends.
    guest.#qemu = spawn('setpriv', ['--pdeathsig', 'KILL', 'qemu-system-x86_64', ...words], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, TMPDIR: guest.#dir } })
    process.once('exit', () => guest.end())
    let complaints = ''
    guest.#qemu.stderr.setEncoding('utf8').on('data', (text) => (complaints += text))
    const gone = new Promise((resolve) => guest.#qemu.on('exit', (code) => resolve(code)).on('error', (error) => resolve(error.message)))
    gone.then(() => guest.#over())
    const ready = Promise.all(channels.map((channel) => guest.#connect(channel)))
    const late = new Promise((resolve) => setTimeout(resolve, BOOT_MS, 'late').unref())
    const first = await Promise.race([ready.then(() => 'ready'), late, gone.then((code) => `QEMU ended with ${code}`)])
    if (first !== 'ready') {
      guest.end()
      throw new Error(`the guest ${name} did not come up (${first}): ${complaints}\n${tail(guest.log)}`)
    }
    guest.seconds = (Date.now() - start) / 1000
    return guest
  }

  /** Runs a shell script and gives its end and its output (both streams). */
  async run(column, script, seconds = 120) {
    const channel = await this.#take(column)
    if (channel === null) return { code: null, output: 'the guest is gone' }
    const { code, output, alive } = await channel.ask(script, seconds)
    if (alive) this.#give(column, channel)
    return { code, output }
  }

  /** Whether it still answers. */
  get alive() {
    return this.#qemu.exitCode === null && this.#qemu.signalCode === null
  }

  /** Ends it, whatever it is doing. */
  end() {
    this.#qemu.kill('SIGKILL')
    for (const socket of this.#sockets) socket.destroy()
    rmSync(this.#dir, { recursive: true, force: true })
  }

  #over() {
    for (const list of this.#waiting.values()) for (const resolve of list.splice(0)) resolve(null)
    for (const socket of this.#sockets) socket.destroy()
  }

  #take(column) {
    const idle = this.#idle.get(column) ?? []
    if (!this.alive) return null
    if (idle.length > 0) return idle.pop()
    return new Promise((resolve) => this.#waiting.get(column).push(resolve))
  }

  #give(column, channel) {
    const next = this.#waiting.get(column).shift()
    if (next) next(channel)
    else this.#idle.set(column, [...(this.#idle.get(column) ?? []), channel])
  }

  /** Resolves when the guest's end of a port says that it is ready. */
  async #connect({ column, socket: path }) {
    const socket = await connected(path)
    this.#sockets.push(socket)
    let held = Buffer.alloc(0)
    let wake = () => {}
    let closed = false
    socket.on('data', (data) => {
      held = Buffer.concat([held, data])
      wake()
    })
    socket.on('close', () => {
      closed = true
      wake()
    })
    socket.on('error', () => {})
    const until = async (found) => {
      for (;;) {
        const worth = found()
        if (worth !== undefined) return worth
        if (closed) return null
        await new Promise((resolve) => (wake = resolve))
      }
    }
    const line = () => until(() => {
      const end = held.indexOf(10)
      if (end < 0) return undefined
      const text = held.subarray(0, end).toString()
      held = held.subarray(end + 1)
      return text
    })
    const bytes = (n) => until(() => {
      if (held.length < n) return undefined
      const text = held.subarray(0, n).toString()
      held = held.subarray(n)
      return text
    })
    const ask = async (script, seconds) => {
      const id = String(this.#next++)
      const text = Buffer.from(script)
      // The guest ends what takes too long itself; where it does not even do that, the channel is given up.
      const timer = setTimeout(() => socket.destroy(), (seconds + 60) * 1000)
      socket.write(`${id} ${seconds} ${text.length}\n`)
      socket.write(text)
      try {
        const head = await line()
        if (head === null) return { code: null, output: this.alive ? `the guest did not answer within ${seconds + 60} s` : 'the guest is gone', alive: false }
        const [back, code, length] = head.split(' ')
        if (back !== id) return { code: null, output: `the guest answered "${head}" to ${id}`, alive: false }
        const output = await bytes(Number(length))
        return { code: Number(code), output: output ?? '', alive: output !== null }
      } finally {
        clearTimeout(timer)
      }
    }
    const hello = await line()
    if (hello === null || !hello.startsWith('ready ')) throw new Error(`a channel of the guest said ${hello}`)
    this.#give(column, { ask })
  }
}

/** The last lines of a console. */
export function tail(file, lines = 40) {
  try {
    return readFileSync(file, 'utf8').split('\n').slice(-lines).join('\n')
  } catch {
    return ''
  }
}

/** QEMU makes its sockets a moment after it starts. */
async function connected(path) {
  for (let tries = 0; ; tries++) {
    const socket = createConnection(path)
    const error = await new Promise((resolve) => socket.once('connect', () => resolve(null)).once('error', resolve))
    if (error === null) return socket
    if (tries > 100) throw error
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}
