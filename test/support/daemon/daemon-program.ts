import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { PassedOn } from './held-socket.ts';

export interface LogLine {
  readonly level: string;
  readonly msg: string;
  readonly [field: string]: unknown;
}

export interface ProgramOptions {
  /** Runs the file itself, not Node with the file. */
  readonly isExecutable?: boolean;
  /** Runs as this user and group. Only the daemon's file has to be readable for them: Node itself starts as root. */
  readonly uid?: number;
  readonly env?: NodeJS.ProcessEnv;
  /** Sockets and variables as passed by systemd. */
  readonly passedOn?: PassedOn;
}

/** The daemon as a separate process. */
export class Program {
  readonly process: ChildProcess;
  readonly exited: Promise<{ code: number | null; signal: string | null }>;
  stdout = '';
  stderr = '';

  constructor(file: string, args: readonly string[], options: ProgramOptions = {}) {
    // Uses only paths that the test provides.
    const resize = args.includes('--resize-listen') ? [] : ['--resize-listen', ''];
    const own = args.includes('--listen') ? ['--state-folder', `${file}.state`, ...resize] : [];
    const { passedOn, env, uid, isExecutable = false } = options;
    const program = isExecutable ? [file] : [process.execPath, ...(uid === undefined ? [] : [becoming(uid)]), file];
    const [command = '', ...rest] = [...(passedOn?.before ?? []), ...program, ...own, ...args];
    this.process = spawn(command, rest, {
      stdio: ['ignore', 'pipe', 'pipe', ...(passedOn?.descriptors ?? [])],
      cwd: '/',
      env: { ...process.env, ...passedOn?.env, ...env },
    });
    this.process.stdout?.setEncoding('utf8').on('data', (text: string) => (this.stdout += text));
    this.process.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
      this.process.emit('log');
    });
    // 'close', not 'exit', so that all output has been read.
    this.exited = once(this.process, 'close').then(([code, signal]) => ({
      code: code as number | null,
      signal: signal as string | null,
    }));
  }

  get log(): LogLine[] {
    return this.stderr
      .split('\n')
      .filter((line) => line.startsWith('{') && line.endsWith('}'))
      .map((line) => JSON.parse(line) as LogLine);
  }

  /** Waits for a log line with this message. */
  async logged(message: string): Promise<LogLine> {
    for (;;) {
      const line = this.log.find(({ msg }) => msg === message);
      if (line !== undefined) return line;
      const ended = await Promise.race([once(this.process, 'log').then(() => false), this.exited.then(() => true)]);
      if (ended && !this.log.some(({ msg }) => msg === message)) {
        throw new Error(`exited without logging "${message}": ${this.stderr}`);
      }
    }
  }

  kill(signal: NodeJS.Signals): void {
    this.process.kill(signal);
  }
}

/** Returns a flag for Node that changes the user before the program is loaded. */
function becoming(uid: number): string {
  const script = `process.setgroups([]); process.setgid(${uid}); process.setuid(${uid});`;
  return `--import=data:text/javascript,${encodeURIComponent(script)}`;
}
