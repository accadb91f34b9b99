import { rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:http2';
import { createConnection } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { EntryPoint } from '../support/daemon/entry-point.ts';

// How soon the entry point of the image serves clients. Depends on the speed of the machine.

let entry: EntryPoint;

beforeEach(async () => {
  entry = new EntryPoint();
  await entry.serve();
});
afterEach(() => entry.remove());

async function call(): Promise<string> {
  const session = connect('http://localhost', { createConnection: () => createConnection(entry.listen) });
  try {
    return await text(session.request());
  } finally {
    session.destroy();
  }
}

describe.each([
  ['crashes at its start', () => entry.mode('crash')],
  ['hangs at its start', () => entry.mode('hang')],
  ['has no Node', () => rmSync(entry.at('bin/node'))],
  ['has a broken Node', () => writeFileSync(entry.at('bin/node'), '\x7fELF broken')],
])('a shim that %s', (_title, fail) => {
  test('upgrade: in a container, the entry point bypasses a failing shim within 10 s, also for a client that waits', async () => {
    entry.mode('serve');
    fail();
    const since = Date.now();
    entry.run();
    await entry.listens();
    expect(await call()).toBe('containerd');
    expect(Date.now() - since).toBeLessThan(10_000);
  });
});
