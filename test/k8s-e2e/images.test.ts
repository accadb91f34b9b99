import { expect, test } from 'vitest';
import { e2eImages } from './images.ts';

const parts = { busybox: Buffer.from('busybox'), applets: ['sh', 'wget'], agnhost: Buffer.from('agnhost') };
const made = (...names: readonly string[]) => e2eImages(names, parts);
const pathsOf = (names: readonly string[], image: string): readonly string[] =>
  (made(...names).get(image)?.layers ?? []).flat().map(({ path }) => path);

test('an image has the repository and the tag that the specs name, without the registry', () => {
  const images = made('registry.k8s.io/e2e-test-images/agnhost:2.63.0', 'registry.k8s.io/pause:3.10.2');
  expect([...images.keys()]).toEqual(['e2e-test-images/agnhost:2.63.0', 'pause:3.10.2', 'conformance-pause:1']);
});

test('an image that cannot be made locally is left out', () => {
  expect([...made('registry.k8s.io/etcd:3.6.8-0', 'invalid.registry.k8s.io/invalid/alpine:3.1').keys()]).toEqual([
    'conformance-pause:1',
  ]);
});

test('the agnhost image has its program under two names, and a shell', () => {
  const paths = pathsOf(['registry.k8s.io/e2e-test-images/agnhost:2.55'], 'e2e-test-images/agnhost:2.55');
  expect(paths).toEqual(
    expect.arrayContaining(['agnhost', 'agnhost-2', 'bin/sh', 'bin/curl', 'bin/bash', 'uploads', 'localhost.crt']),
  );
});
