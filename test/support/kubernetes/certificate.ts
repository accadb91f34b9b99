import { type KeyObject, createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto';

/** A certificate that only tests trust, and its key, both in PEM. */
export interface TestCertificate {
  readonly certificate: string;
  readonly key: string;
}

/**
 * Creates an X.509 certificate (RFC 5280) in DER with the parts that TLS needs: self-signed, for `localhost` and an
 * IPv4 address, valid for one day.
 */
export function makeCertificate(name: string, address = '127.0.0.1'): TestCertificate {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const algorithm = sequence(oid('2a8648ce3d040302'));
  const subject = sequence(set(sequence(oid('550403'), der(0x0c, Buffer.from(name)))));
  const now = Date.now();
  const signed = sequence(
    der(0xa0, integer(Buffer.from([2]))),
    integer(Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    algorithm,
    subject,
    sequence(utcTime(now - 3_600_000), utcTime(now + 86_400_000)),
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(alternativeNames(address), isAuthority(), keyIdentifier(publicKey))),
  );
  const signature = sign('sha256', signed, privateKey);
  const whole = sequence(signed, algorithm, der(0x03, Buffer.from([0]), signature));
  const lines = whole.toString('base64').match(/.{1,64}/g)!;
  return {
    certificate: ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n'),
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
  };
}

function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  if (length < 128) return Buffer.concat([Buffer.from([tag, length]), content]);
  const bytes = length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...bytes]), content]);
}

const sequence = (...parts: Buffer[]): Buffer => der(0x30, ...parts);
const set = (...parts: Buffer[]): Buffer => der(0x31, ...parts);
const integer = (value: Buffer): Buffer => der(0x02, value);
const oid = (hex: string): Buffer => der(0x06, Buffer.from(hex, 'hex'));
const octets = (...parts: Buffer[]): Buffer => der(0x04, ...parts);
const extension = (id: string, content: Buffer): Buffer => sequence(oid(id), octets(content));
const utcTime = (at: number): Buffer =>
  der(0x17, Buffer.from(`${new Date(at).toISOString().slice(2, 19).replace(/[-T:]/g, '')}Z`));
const alternativeNames = (address: string): Buffer =>
  extension(
    '551d11',
    sequence(der(0x82, Buffer.from('localhost')), der(0x87, Buffer.from(address.split('.').map(Number)))),
  );
const isAuthority = (): Buffer => extension('551d13', sequence(der(0x01, Buffer.from([0xff]))));
const keyIdentifier = (key: KeyObject): Buffer =>
  extension(
    '551d0e',
    octets(
      createHash('sha1')
        .update(key.export({ type: 'spki', format: 'der' }))
        .digest(),
    ),
  );
