import { expect, test } from 'vitest';
import { problemOf, readBytes } from '../../../src/kubelet/endpoint/files.ts';

test.each([
  ['ENOENT', { problem: '/k.yaml does not exist' }],
  ['EACCES', { problem: '/k.yaml cannot be read: permission denied', isDenied: true }],
  ['EPERM', { problem: '/k.yaml cannot be read: permission denied', isDenied: true }],
  ['EIO', { problem: 'EIO: open /proc/42/root/k.yaml' }],
])('describes the error %s of a file that cannot be read', (code, expected) => {
  const error = Object.assign(new Error(`${code}: open /proc/42/root/k.yaml`), { code });
  expect(problemOf(error, '/k.yaml')).toEqual(expected);
});

test('reads the null device as an empty file, and rejects other devices and folders', async () => {
  expect((await readBytes('/dev/null', '/k.env')).toString()).toBe('');
  for (const path of ['/dev/zero', '/dev'])
    await expect(readBytes(path, '/k.env')).rejects.toThrow('/k.env is not a regular file');
});
