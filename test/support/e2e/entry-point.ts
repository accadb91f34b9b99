import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Http2Server } from 'node:http2';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect } from 'vitest';
import { LONG_WAIT } from '../long-wait.ts';

/**
 * A shim of few lines: serves its descriptor 3, or fails as the file `mode` says. With the mode `wait`, it waits for
 * another one.
 */
const SHIM = `
import { readFileSync, writeSync } from 'node:fs';
import { createServer } from 'node:http2';
if (process.argv.includes('--version')) { console.log('1.2.3'); process.exit(0); }
const modeNow = () => readFileSync(process.env.MODE, 'utf8');
if (modeNow() === 'wait') console.log('shim ' + process.pid + ' waits');
while (modeNow() === 'wait') await new Promise((resolve) => setTimeout(resolve, 10));
const mode = modeNow();
if (mode === 'crash') process.abort();
if (mode === 'deaf') process.on('SIGTERM', () => undefined);
if (mode === 'deaf') console.log('deaf');
if (mode === 'hang' || mode === 'deaf') setInterval(() => undefined, 1e9);
if (mode.startsWith('serve')) {
  const server = createServer((_, response) => response.end('shim'));
  process.on('SIGTERM', () => process.exit(Number(mode.split(' ')[1] ?? 0)));
  server.listen({ fd: 3 }, () => writeSync(Number(process.env.CRI_RESIZE_SHIM_NOTIFY_FD), 'READY=1\\nSTATUS=serving\\n'));
}
`;

/** Options for expect.poll. */
export const LONG = { ...LONG_WAIT, interval: 20 };

/** Constants with which the bypass serves at once, and the shim is restarted after a second. */
export const AT_ONCE = { UNSERVED: 0, PAUSE: 1, MOST: 1 };

/** Constants with which the shim has enough time to start on a busy machine. */
export const PATIENT = { UNSERVED: 600, START: 600 };

export interface RunOptions {
  /** New values of constants of the entry point, in ticks, and that of TICK in seconds. */
  readonly constants?: Readonly<Record<string, number>>;
  /** The limit of open descriptors. */
  readonly descriptors?: number;
  /** Whether nobody reads the log. */
  readonly isLogStalled?: boolean;
}

/**
 * The image's entry point in a separate folder, with the proxy and the takeover of the bypass. The shim only answers
 * its name. containerd is an HTTP/2 server.
 */
export class EntryPoint {
  readonly folder = mkdtempSync(join(tmpdir(), 'entry-'));
  readonly listen = this.at('run/cri.sock');
  readonly backend: Http2Server = createServer();
  process: ChildProcess | undefined;
  output = '';
  /** Ends the calls of /slow. */
  answer: () => void = () => undefined;

  constructor() {
    for (const name of ['bin', 'program/container', 'program/dist', 'backend'])
      mkdirSync(this.at(name), { recursive: true });
    cpSync('container/entry.sh', this.at('program/container/entry.sh'));
    writeFileSync(this.at('shim.mjs'), SHIM);
    const [node, takeover] = [process.execPath, resolve('dist/resizectl.js')];
    writeFileSync(
      this.at('bin/node'),
      `#!/bin/sh
program=$1; shift
case $program in
  */dist/resizectl.js) exec ${node} ${takeover} "$@" ;;
  */dist/cri-resize-shim.js) exec ${node} ${this.at('shim.mjs')} "$@" ;;
esac
`,
    );
    chmodSync(this.at('bin/node'), 0o755);
    const answered = new Promise<void>((done) => (this.answer = done));
    this.backend.on('stream', (stream, headers) => {
      stream.respond({ ':status': 200 });
      if (headers[':path'] === '/slow') void answered.then(() => stream.end('slow'));
      else stream.end(`${'x'.repeat(Number(/^\/(\d+)/.exec(String(headers[':path']))?.[1] ?? 0))}containerd`);
    });
  }

  at(name: string): string {
    return join(this.folder, name);
  }

  async serve(): Promise<void> {
    this.backend.listen(this.at('backend/sock'));
    await once(this.backend, 'listening');
  }

  /** Sets the mode by a rename, because the shim may read the file at any time. */
  mode(text: string): void {
    writeFileSync(this.at('mode.new'), text);
    renameSync(this.at('mode.new'), this.at('mode'));
  }

  run(flags: readonly string[] = [], { constants = {}, descriptors, isLogStalled = false }: RunOptions = {}): void {
    const program = this.at('program/container/entry.sh');
    let text = readFileSync(program, 'utf8');
    for (const [name, value] of Object.entries(constants)) {
      expect(text).toMatch(new RegExp(`^${name}=\\d+ `, 'm'));
      text = text.replace(new RegExp(`^${name}=\\d+ `, 'm'), `${name}=${value} `);
    }
    writeFileSync(program, text);
    const sockets = ['--listen', this.listen, `--container-runtime-endpoint=unix://${this.at('backend/sock')}`];
    const words = ['bash', program, ...(flags.length > 0 ? flags : sockets)];
    // A FIFO that is its own reader. Node itself passes sockets, and a container has pipes.
    const log = isLogStalled ? `mkfifo ${this.at('log')}; exec 2<>${this.at('log')}; ` : '';
    const limit = descriptors === undefined ? '' : `ulimit -n ${descriptors}; `;
    const args = ['-c', `${log}${limit}exec "$@"`, 'sh', ...words];
    // Not the Node of this test.
    const ofImage = process.env['PATH']!.split(':').filter((folder) => existsSync(join(folder, 's6-ipcclient')));
    const path = [this.at('bin'), ...ofImage, '/usr/bin', '/bin'].join(':');
    const env = { ...process.env, PATH: path, MODE: this.at('mode') };
    this.process = spawn('sh', args, { env, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    for (const stream of [this.process.stdout!, this.process.stderr!])
      stream.setEncoding('utf8').on('data', (chunk: string) => (this.output += chunk));
  }

  says(text: string): Promise<void> {
    return expect.poll(() => this.output, LONG).toContain(text);
  }

  /** Returns the process id of a shim in the mode `wait`. */
  async waitingShim(): Promise<number> {
    await expect.poll(() => this.output, LONG).toMatch(/shim \d+ waits\n/);
    return Number(/shim (\d+) waits/.exec(this.output)![1]);
  }

  /** Waits until the file for the shim reports this state of the bypass. The log reports it earlier. */
  states(text: RegExp): Promise<void> {
    return expect.poll(() => readFileSync(this.at('run/.cri.sock.bypass'), 'utf8'), LONG).toMatch(text);
  }

  /** Waits until clients can connect, a moment after the socket exists. A connection would count as a client. */
  listens(): Promise<void> {
    const accepts = (line: string): boolean => line.endsWith(` ${this.listen}`) && line.split(' ')[3] === '00010000';
    return expect.poll(() => readFileSync('/proc/net/unix', 'utf8').split('\n').some(accepts), LONG).toBe(true);
  }

  async remove(): Promise<void> {
    this.answer();
    if (this.process?.exitCode === null && this.process.signalCode === null) {
      const ended = once(this.process, 'exit');
      // Kills the entry point together with its shim and its proxy.
      process.kill(-this.process.pid!, 'SIGKILL');
      await ended;
    }
    this.backend.close();
    rmSync(this.folder, { recursive: true });
  }
}
