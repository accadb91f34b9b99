import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { buildProgram } from '../support/daemon/build-program.ts';

let program: string;

beforeAll(async () => {
  program = await buildProgram('src/resizectl/main.ts');
});
afterAll(() => rmSync(program));

const resizectl = (stdio: readonly (number | 'pipe' | 'ignore')[], ...args: readonly string[]) =>
  spawn(process.execPath, [program, ...args], { stdio: ['ignore', ...stdio] });

/** A pipe whose reading end is closed. */
function brokenPipe(): number {
  const fifo = `/tmp/resizectl-${process.pid}-${Math.random()}`;
  execFileSync('mkfifo', [fifo]);
  const reader = openSync(fifo, 'r+');
  const writer = openSync(fifo, 'w');
  closeSync(reader);
  execFileSync('rm', [fifo]);
  return writer;
}

async function codeOf(child: ReturnType<typeof resizectl>): Promise<unknown> {
  const [code] = (await once(child, 'exit')) as [number | null];
  return code;
}

test('an unsuitable Node ends every command with one line that says which Node it needs', async () => {
  const older = "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '22.9.0' } });";
  const file = `${program}.cjs`;
  writeFileSync(file, older);
  const child = spawn(process.execPath, ['--require', file, program, 'doctor'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const [code, said] = await Promise.all([codeOf(child), text(child.stderr)]);
  rmSync(file);
  expect([code, said]).toEqual([
    2,
    expect.stringMatching(/^resizectl: Node 22\.9\.0 is too old: run it with Node 24 or later .*\n$/),
  ]);
});

test('a failed write of the output is an error with exit code 1', async () => {
  const full = openSync('/dev/full', 'w');
  const child = resizectl([full, 'pipe'], 'man');
  const [code, said] = await Promise.all([codeOf(child), text(child.stderr!)]);
  closeSync(full);
  expect([code, said]).toEqual([1, expect.stringMatching(/^resizectl: the output cannot be written: .*ENOSPC/)]);
});

test('a reader that closes its pipe early ends the command without an error', async () => {
  const pipe = brokenPipe();
  const child = resizectl([pipe, 'pipe'], 'man');
  const [code, said] = await Promise.all([codeOf(child), text(child.stderr!)]);
  closeSync(pipe);
  expect([code, said]).toEqual([0, '']);
});

test('a command keeps its exit code if the reader of its errors has closed the pipe', async () => {
  const pipe = brokenPipe();
  const code = await codeOf(resizectl(['ignore', pipe], 'resize'));
  closeSync(pipe);
  expect(code).toBe(2);
});
