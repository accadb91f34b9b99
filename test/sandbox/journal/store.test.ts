import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { StateFolder } from '../../../src/sandbox/journal/files.ts';
import { numberIn, numbered, podUid, volumeOf } from '../../support/journal/numbered.ts';
import { anyRecord } from '../../support/journal/records.ts';
import { TestFolder, modeOf, ofThisBoot, recordName, uid } from '../../support/journal/test-folder.ts';

let state: TestFolder;
beforeEach(() => {
  state = new TestFolder();
});
afterEach(() => state.remove());

describe('the journal', () => {
  test('returns the written records after a restart, and no removed ones', async () => {
    const journal = await state.open();
    expect(journal.readiness).toEqual({ ready: true });
    expect(await journal.load()).toEqual([]);
    await journal.write(numbered(1));
    await journal.write(numbered(2, uid(2)));
    await journal.write(numbered(3));
    expect(await (await state.open()).load()).toEqual([ofThisBoot(numbered(2, uid(2))), ofThisBoot(numbered(3))]);
    await journal.remove(podUid);
    expect(await (await state.open()).load()).toEqual([ofThisBoot(numbered(2, uid(2)))]);
    await journal.remove(podUid);
    await journal.remove('never-written');
    await journal.remove(uid(2));
    expect(readdirSync(state.folder)).toEqual([]);
    await state.closeAll();
    expect(state.descriptors()).toEqual([]);
    expect(state.logged).toEqual([]);
  });

  test('stores any valid record and returns it unchanged', async () => {
    const journal = await state.open();
    await fc.assert(
      fc.asyncProperty(anyRecord, async (record) => {
        await journal.write(record);
        expect(await journal.load()).toStrictEqual([ofThisBoot(record)]);
        await journal.remove(record.podUid);
        expect(await journal.load()).toEqual([]);
      }),
      { numRuns: 50 },
    );
  });

  test('creates its folder with mode 0700 and files with mode 0600', async () => {
    state.folder = join(state.base, 'a/b/state');
    const journal = await state.open();
    await journal.write(numbered(1));
    expect([modeOf(state.folder), modeOf(state.path(recordName))]).toEqual(['700', '600']);
  });

  test('reads the boot id of the kernel when none is given', async () => {
    const journal = await state.openAnyBoot({});
    await journal.write(numbered(1));
    const { bootId } = JSON.parse(readFileSync(state.path(recordName), 'utf8')) as { bootId: string };
    expect(bootId).toBe(readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim());
    expect(await (await state.openAnyBoot({})).load()).toEqual([ofThisBoot(numbered(1))]);
  });

  test('writes no file outside its folder, for any pod uid', async () => {
    const journal = await state.open();
    const uids = ['../../etc/x', '../x', '/etc/x', '..', '', 'a/b', `${podUid}/../x`, 'x'.repeat(5000)];
    for (const [index, name] of uids.entries()) await journal.write(numbered(index, name));
    expect(readdirSync(state.base)).toEqual(['state']);
    expect(readdirSync(state.folder)).toHaveLength(uids.length);
    expect((await (await state.open()).load()).map((record) => record.podUid).sort()).toEqual([...uids].sort());
    for (const name of uids) await journal.remove(name);
    expect(readdirSync(state.folder)).toEqual([]);
  });

  test('does not change files that do not belong to the journal', async () => {
    const journal = await state.open();
    for (const name of ['notes.txt', 'config.json', 'x.bad', 'y.json.tmp']) writeFileSync(state.path(name), '{');
    await journal.write(numbered(1));
    expect(await journal.load()).toEqual([ofThisBoot(numbered(1))]);
    expect(readdirSync(state.folder).sort()).toEqual([recordName, 'config.json', 'notes.txt', 'x.bad', 'y.json.tmp']);
  });
});

describe('journal writes', () => {
  test('writes of one pod run one after the other, and the newest wins', async () => {
    const journal = await state.open();
    await Promise.all(Array.from({ length: 50 }, (_, index) => journal.write(numbered(index))));
    expect(await journal.load()).toEqual([ofThisBoot(numbered(49))]);
    await Promise.all([journal.write(numbered(60)), journal.remove(podUid)]);
    expect(await journal.load()).toEqual([]);
    await Promise.all([
      journal.remove(podUid),
      journal.write(numbered(70)),
      journal.remove(podUid),
      journal.write(numbered(71)),
    ]);
    expect(await journal.load()).toEqual([ofThisBoot(numbered(71))]);
  });

  test('a write stores the record as it is at the call, even if it changes afterwards', async () => {
    const journal = await state.open();
    const volumes = new Map([['cache', volumeOf(1)]]);
    const writing = journal.write({ podUid, sandboxId: 's', volumes });
    volumes.set('cache', volumeOf(2));
    await writing;
    expect((await journal.load())[0]?.volumes).toEqual(new Map([['cache', volumeOf(1)]]));
  });

  test('writes of one pod run concurrently with writes of other pods and with reads', async () => {
    const journal = await state.open();
    const writes = Array.from({ length: 400 }, (_, index) => journal.write(numbered(index, uid(index % 40))));
    for (let round = 0; round < 5; round += 1)
      for (const record of await journal.load())
        expect(record).toEqual(ofThisBoot(numbered(numberIn(record), record.podUid)));
    await Promise.all(writes);
    expect((await journal.load()).map(numberIn)).toEqual(Array.from({ length: 40 }, (_, index) => 360 + index));
    expect(readdirSync(state.folder)).toHaveLength(40);
    expect(state.counters.snapshot().journalFaults).toEqual({});
  });
});

test('a removal until the next boot does not need the open state folder, a durable removal does', async () => {
  const journal = await state.open();
  await journal.write(numbered(1));
  await journal.write(numbered(2, uid(2)));
  const used = vi.spyOn(StateFolder.prototype, 'use');
  await journal.remove(podUid, 'this-boot');
  expect(used).not.toHaveBeenCalled();
  await journal.remove(uid(2));
  expect(used).toHaveBeenCalledTimes(1);
  expect(readdirSync(state.folder)).toEqual([]);
  used.mockRestore();
});

describe('a journal of an earlier boot', () => {
  test('only volumes and deferred requests remain of the records of an earlier boot', async () => {
    const resizes = [{ id: 'r1', memory: 5 }, null];
    const journal = await state.open({ bootId: 'boot-1' });
    await journal.write(numbered(1));
    await journal.write({ ...numbered(2, uid(2)), volumes: new Map(), resizes });
    await journal.write({ ...numbered(3, uid(3)), volumes: new Map() });
    const later = await state.open({ bootId: 'boot-2' });
    // The mount of the earlier boot does not exist any more.
    const { mount, ...withoutMount } = volumeOf(1);
    expect(mount).toBeDefined();
    for (let round = 0; round < 2; round += 1) {
      expect(await later.load()).toEqual([
        { podUid: uid(2), sandboxId: 'sandbox-2', volumes: new Map(), resizes, earlierBoot: true },
        { podUid, sandboxId: 'sandbox-1', volumes: new Map([['cache', withoutMount]]), earlierBoot: true },
      ]);
    }
    expect(readdirSync(state.folder)).toHaveLength(2);
    await later.write(numbered(4));
    expect(await later.load()).toContainEqual(ofThisBoot(numbered(4)));
  });
});
