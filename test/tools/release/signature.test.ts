import { type KeyObject, generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { signFile } from '../../../tools/release/signature.ts';

let root: string;
let file: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'signature-'));
  file = join(root, 'SHA256SUMS');
  writeFileSync(file, 'abc  file\n');
});
afterEach(() => rmSync(root, { recursive: true }));

const put = (text: string): string => {
  writeFileSync(join(root, 'key.pem'), text);
  return join(root, 'key.pem');
};
/** Returns the private key as PEM, as openssl writes it. */
const pem = ({ privateKey }: { readonly privateKey: KeyObject }): string =>
  String(privateKey.export({ type: 'pkcs8', format: 'pem' }));

/** Verifies with openssl, as docs/release.md says. */
const verified = (...flags: readonly string[]): Promise<boolean> =>
  execa('openssl', [...flags], { cwd: root, reject: false }).then(({ exitCode }) => exitCode === 0);

test('openssl verifies the signature of an Ed25519 key, and not of another content', async () => {
  signFile(file, put(pem(generateKeyPairSync('ed25519'))));
  const command = ['pkeyutl', '-verify', '-rawin', '-pubin', '-inkey', 'SHA256SUMS.pub', '-in', 'SHA256SUMS'];
  expect(await verified(...command, '-sigfile', 'SHA256SUMS.sig')).toBe(true);
  writeFileSync(file, 'abd  file\n');
  expect(await verified(...command, '-sigfile', 'SHA256SUMS.sig')).toBe(false);
});

test.each([
  ['ec', pem(generateKeyPairSync('ec', { namedCurve: 'P-256' }))],
  ['rsa', pem(generateKeyPairSync('rsa', { modulusLength: 2048 }))],
])('openssl verifies the signature of a key of type %s', async (_, key) => {
  signFile(file, put(key));
  expect(
    await verified('dgst', '-sha256', '-verify', 'SHA256SUMS.pub', '-signature', 'SHA256SUMS.sig', 'SHA256SUMS'),
  ).toBe(true);
});

test('rejects a file that is not a key, and a key that cannot sign, with the name of the file', () => {
  expect(() => signFile(file, put('no key'))).toThrow(/key\.pem cannot be used: expected a private key in PEM/);
  expect(() => signFile(file, put(pem(generateKeyPairSync('x25519'))))).toThrow(
    /key\.pem is of type x25519: expected ed25519, ec or rsa/,
  );
});
