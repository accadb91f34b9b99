import { existsSync, lstatSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { turnBypassOn } from '../../../src/install/node/bypass.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

const link = (): string => join(fake.folder, 'cri-resize-shim.socket.wants/cri-resize-shim-bypass.service');

/** A systemctl that links units as systemd does; starts of the bypass end with this code. */
function systemctl(start: number): void {
  fake.systemctl(`case "$*" in
add-wants*) mkdir -p ${fake.folder}/cri-resize-shim.socket.wants; ln -sf /unit ${link()} ;;
disable*bypass*) rm ${link()} ;;
start*bypass*) exit ${start} ;;
esac`);
}

test('a bypass that does not start is not held, so that the shim starts after the next boot', async () => {
  systemctl(1);
  await expect(turnBypassOn(fake.folder)).rejects.toThrow();
  expect(existsSync(join(link(), '..'))).toBe(true);
  expect(() => lstatSync(link())).toThrow('ENOENT');
});

test('a bypass that was held before stays held', async () => {
  systemctl(0);
  await turnBypassOn(fake.folder);
  expect(lstatSync(link()).isSymbolicLink()).toBe(true);
  systemctl(1);
  await expect(turnBypassOn(fake.folder)).rejects.toThrow();
  expect(lstatSync(link()).isSymbolicLink()).toBe(true);
});
