import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** A shell in a mount namespace of its own. It executes one command after another and reports the end of each. */
export function shell(script: string): { next(): Promise<string>; end(): Promise<void>; readonly pid: number } {
  const child = spawn('unshare', ['-m', '--propagation', 'slave', 'sh', '-ec', script], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const ended = once(child, 'exit');
  return {
    pid: child.pid ?? 0,
    async next() {
      child.stdin.write('\n');
      const { value } = (await lines.next()) as { value: unknown };
      return String(value);
    },
    async end() {
      child.stdin.end();
      await ended;
    },
  };
}
