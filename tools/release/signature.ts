import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

/** The digest that a key signs; Ed25519 signs the content itself. */
const digestOf = (key: KeyObject): string | undefined => (key.asymmetricKeyType === 'ed25519' ? undefined : 'sha256');

/**
 * Signs a file with a private key in PEM, and writes the signature as bytes and the public key next to it: `FILE.sig`
 * and `FILE.pub`. openssl verifies both: docs/release.md. Throws if the key cannot be read, or is not one that signs.
 */
export function signFile(file: string, keyFile: string): readonly string[] {
  const key = readKey(keyFile);
  const content = readFileSync(file);
  const signature = sign(digestOf(key), content, key);
  const publicKey = createPublicKey(key);
  if (!verify(digestOf(key), content, publicKey, signature)) throw new Error(`the signature of ${file} is not valid`);
  const [sig, pub] = [`${file}.sig`, `${file}.pub`];
  writeFileSync(sig, signature);
  writeFileSync(pub, publicKey.export({ type: 'spki', format: 'pem' }));
  return [sig, pub];
}

function readKey(file: string): KeyObject {
  let key: KeyObject;
  try {
    key = createPrivateKey(readFileSync(file));
  } catch (error) {
    throw new Error(`the key ${file} cannot be used: expected a private key in PEM, without a passphrase`, {
      cause: error,
    });
  }
  if (!['ed25519', 'ec', 'rsa'].includes(key.asymmetricKeyType ?? ''))
    throw new Error(`the key ${file} is of type ${key.asymmetricKeyType ?? 'unknown'}: expected ed25519, ec or rsa`);
  return key;
}
