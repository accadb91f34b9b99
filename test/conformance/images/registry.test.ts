import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import * as z from 'zod';
import { startRegistry } from './registry.ts';
import type { Registry } from './registry.ts';

const descriptor = z.object({ mediaType: z.string(), digest: z.string(), size: z.number() });
const manifestShape = z.object({ config: descriptor, layers: z.array(descriptor) });

describe('the registry of the conformance test', () => {
  const base = [{ kind: 'file', path: 'bin/sh', mode: 0o755, content: Buffer.from('shell') }] as const;
  const marked = (marker: string) => ({
    layers: [base, [{ kind: 'file', path: marker, mode: 0o644, content: Buffer.alloc(100_000, marker) }] as const],
    config: { command: ['/bin/sh'], user: '1002' },
  });
  let registry: Registry;
  beforeEach(async () => {
    registry = await startRegistry(
      new Map([
        ['tests/one:latest', marked('one')],
        ['tests/two:1', marked('two')],
      ]),
    );
  });
  afterEach(() => registry.close());

  const ask = (path: string, method = 'GET'): Promise<Response> =>
    fetch(`http://127.0.0.1:${registry.port}${path}`, { method });
  const bytesOf = async (answer: Response): Promise<Uint8Array> => new Uint8Array(await answer.arrayBuffer());
  const sha256 = (bytes: Uint8Array): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

  test('answers the API version check', async () => {
    expect((await ask('/v2/')).status).toBe(200);
  });

  test('serves a manifest by tag and by digest for any mirrored registry', async () => {
    const byTag = await ask('/v2/tests/one/manifests/latest?ns=registry.example');
    const bytes = await bytesOf(byTag);
    expect(byTag.headers.get('content-type')).toBe('application/vnd.oci.image.manifest.v1+json');
    expect(byTag.headers.get('docker-content-digest')).toBe(sha256(bytes));
    const byDigest = await ask(`/v2/tests/one/manifests/${sha256(bytes)}`);
    expect(await bytesOf(byDigest)).toEqual(bytes);
  });

  test('serves blobs that match the manifest, and one digest for a layer that images share', async () => {
    const manifests = await Promise.all(
      ['one/manifests/latest', 'two/manifests/1'].map(async (path) =>
        manifestShape.parse(await (await ask(`/v2/tests/${path}`)).json()),
      ),
    );
    for (const { digest, size } of manifests.flatMap(({ config, layers }) => [config, ...layers])) {
      const bytes = await bytesOf(await ask(`/v2/tests/one/blobs/${digest}`));
      expect([sha256(bytes), bytes.length]).toEqual([digest, size]);
    }
    expect(manifests[0]!.layers[0]).toEqual(manifests[1]!.layers[0]);
    expect(manifests[0]!.config.digest).not.toBe(manifests[1]!.config.digest);
  });

  test('answers HEAD with the size and no content', async () => {
    const whole = await bytesOf(await ask('/v2/tests/two/manifests/1'));
    const head = await ask('/v2/tests/two/manifests/1', 'HEAD');
    expect(head.headers.get('content-length')).toBe(String(whole.length));
    expect((await bytesOf(head)).length).toBe(0);
  });

  test.each([
    '/v2/tests/one/manifests/2',
    '/v2/tests/three/manifests/latest',
    `/v2/tests/one/blobs/sha256:${'0'.repeat(64)}`,
    '/',
  ])('does not serve %s', async (path) => {
    expect((await ask(path)).status).toBe(404);
  });

  test('rejects uploads', async () => {
    expect((await ask('/v2/tests/one/blobs/uploads/', 'POST')).status).toBe(405);
  });
});
