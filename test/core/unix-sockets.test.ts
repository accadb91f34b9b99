import { expect, test } from 'vitest';
import { unixSockets } from '../../src/core/unix-sockets.ts';

test('reads type, state, inode and path of each unix socket, also if the path has spaces or is missing', () => {
  const table = [
    'Num       RefCount Protocol Flags    Type St Inode Path',
    '0000000000000000: 00000002 00000000 00010000 0001 01   100 /run/a socket',
    'ffff9c5d4e8f3000: 00000003 00000000 00000000 0002 03 23456',
    '0000000000000000: 00000003 00000000 00000000 0001 02     0 @abstract',
    '',
  ];
  expect(unixSockets(table.join('\n'))).toEqual([
    { flags: 65_536, type: 1, state: 1, inode: '100', path: '/run/a socket' },
    { flags: 0, type: 2, state: 3, inode: '23456', path: '' },
    { flags: 0, type: 1, state: 2, inode: '0', path: '@abstract' },
  ]);
});
