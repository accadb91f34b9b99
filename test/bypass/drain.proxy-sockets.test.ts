import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { descriptorsOf } from '../../src/bypass/drain.ts';

test('sorts the descriptors of a proxy into clients and backend connections', () => {
  const root = mkdtempSync(join(tmpdir(), 'proc-'));
  mkdirSync(join(root, '7/fd'), { recursive: true });
  mkdirSync(join(root, '7/net'));
  const table = [
    'Num       RefCount Protocol Flags    Type St Inode Path',
    '0000000000000000: 00000002 00000000 00010000 0001 01 100 /run/s.sock',
    '0000000000000000: 00000003 00000000 00000000 0001 03 101 /run/s.sock',
    '0000000000000000: 00000003 00000000 00000000 0001 03 102',
    '0000000000000000: 00000003 00000000 00000000 0001 03 103 /run/other.sock',
    '0000000000000000: 00000003 00000000 00000000 0001 02     0 /run/backend.sock',
    '0000000000000000: 00000003 00000000 00000000 0001 02     0 /run/backend.sock',
  ];
  writeFileSync(join(root, '7/net/unix'), `${table.join('\n')}\n`);
  const links = ['/dev/null', 'socket:[999]', 'socket:[103]', 'socket:[100]', 'socket:[101]', 'socket:[102]'];
  for (const [descriptor, target] of [...links, 'pipe:[5]', 'anon_inode:[eventpoll]'].entries())
    symlinkSync(target, join(root, '7/fd', String(descriptor)));
  expect(descriptorsOf(root, 7, '/run/s.sock')).toEqual({
    clients: [4],
    fromBackend: [2, 5, 6],
    backends: [2, 5],
    unaccepted: new Set(['/run/backend.sock']),
  });
  rmSync(root, { recursive: true });
});
