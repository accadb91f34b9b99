import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ANSWER_MS, Journal, type JournalOptions, RECHECK_MS } from '../../../src/resize/journal/store.ts';
import { createCounters } from '../../../src/observe/counters.ts';
import type { LogFields } from '../../../src/observe/index.ts';
import { FakeClock } from '../../support/resize/fake-resizes.ts';
import { numberIn, numbered, podUid, volumeOf } from '../../support/journal/numbered.ts';
import { anyRecord } from '../../support/journal/records.ts';
import type { PodRecord } from '../../../src/resize/journal/record.ts';

let base: string;
let folder: string;
let counters: ReturnType<typeof createCounters>;
let logged: { level: string; fields: LogFields; message: string }[];

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'journal-'));
  folder = join(base, 'state');
  counters = createCounters();
  logged = [];
});
afterEach(async () => {
  await closeAll();
  rmSync(base, { recursive: true });
});

const keep = (level: string) => (fields: LogFields, message: string) => void logged.push({ level, fields, message });
const log = { debug: keep('debug'), info: keep('info'), warn: keep('warn'), error: keep('error') };
const opened: Journal[] = [];
const opening = async (options: JournalOptions): Promise<Journal> => {
  const journal = await Journal.open(folder, { log, counters, ...options });
  opened.push(journal);
  return journal;
};
const open = (options: JournalOptions = {}): Promise<Journal> => opening({ bootId: 'boot-1', ...options });
const closeAll = async (): Promise<void> => {
  for (const journal of opened.splice(0)) await journal.close();
};
const path = (name: string): string => join(folder, name);
const file = `${podUid}.json`;
const uid = (number: number): string => `${podUid.slice(0, -4)}${String(number).padStart(4, '0')}`;
const now = (record: PodRecord) => ({ ...record, earlierBoot: false });
const mode = (name: string): string => (lstatSync(name).mode & 0o7777).toString(8);
/** Of this process, those that lead into the folder. */
const descriptors = (): string[] =>
  readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/self/fd/${fd}`);
      return target.startsWith(base) ? [target] : [];
    } catch {
      return []; // the one that lists them
    }
  });
const unavailable = (context: object) => ({
  code: 9,
  reason: 'JOURNAL_UNAVAILABLE',
  context: expect.objectContaining(context) as unknown,
});

describe('the journal', () => {
  test('gives after a restart what was written, and nothing once it is removed', async () => {
    const journal = await open();
    expect(journal.readiness).toEqual({ ready: true });
    expect(await journal.load()).toEqual([]);
    await journal.write(numbered(1));
    await journal.write(numbered(2, uid(2)));
    await journal.write(numbered(3));
    expect(await (await open()).load()).toEqual([now(numbered(2, uid(2))), now(numbered(3))]);
    await journal.remove(podUid);
    expect(await (await open()).load()).toEqual([now(numbered(2, uid(2)))]);
    await journal.remove(podUid);
    await journal.remove('never-written');
    await journal.remove(uid(2));
    expect(readdirSync(folder)).toEqual([]);
    await closeAll();
    expect(descriptors()).toEqual([]);
    expect(logged).toEqual([]);
  });

  test('keeps any record', async () => {
    const journal = await open();
    await fc.assert(
      fc.asyncProperty(anyRecord, async (record) => {
        await journal.write(record);
        expect(await journal.load()).toStrictEqual([now(record)]);
        await journal.remove(record.podUid);
        expect(await journal.load()).toEqual([]);
      }),
      { numRuns: 50 },
    );
  });

  test('is for us alone: files 0600, in a folder 0700, made with those above it', async () => {
    folder = join(base, 'a/b/state');
    const journal = await open();
    await journal.write(numbered(1));
    expect([mode(folder), mode(path(file))]).toEqual(['700', '600']);
  });

  test('reads the boot of the kernel when none is given', async () => {
    const journal = await opening({});
    await journal.write(numbered(1));
    const { bootId } = JSON.parse(readFileSync(path(file), 'utf8')) as { bootId: string };
    expect(bootId).toBe(readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim());
    expect(await (await opening({})).load()).toEqual([now(numbered(1))]);
  });

  test('writes no file outside its folder, whatever a pod calls itself', async () => {
    const journal = await open();
    const uids = ['../../etc/x', '../x', '/etc/x', '..', '', 'a/b', `${podUid}/../x`, 'x'.repeat(5000)];
    for (const [index, name] of uids.entries()) await journal.write(numbered(index, name));
    expect(readdirSync(base)).toEqual(['state']);
    expect(readdirSync(folder)).toHaveLength(uids.length);
    expect((await (await open()).load()).map((record) => record.podUid).sort()).toEqual([...uids].sort());
    for (const name of uids) await journal.remove(name);
    expect(readdirSync(folder)).toEqual([]);
  });

  test('leaves files alone that are not its own', async () => {
    const journal = await open();
    for (const name of ['notes.txt', 'config.json', 'x.bad', 'y.json.tmp']) writeFileSync(path(name), '{');
    await journal.write(numbered(1));
    expect(await journal.load()).toEqual([now(numbered(1))]);
    expect(readdirSync(folder).sort()).toEqual([file, 'config.json', 'notes.txt', 'x.bad', 'y.json.tmp']);
  });
});

describe('writes of one pod', () => {
  test('come one after the other, and the newest wins', async () => {
    const journal = await open();
    await Promise.all(Array.from({ length: 50 }, (_, index) => journal.write(numbered(index))));
    expect(await journal.load()).toEqual([now(numbered(49))]);
    await Promise.all([journal.write(numbered(60)), journal.remove(podUid)]);
    expect(await journal.load()).toEqual([]);
    await Promise.all([
      journal.remove(podUid),
      journal.write(numbered(70)),
      journal.remove(podUid),
      journal.write(numbered(71)),
    ]);
    expect(await journal.load()).toEqual([now(numbered(71))]);
  });

  test('are those of the moment, whatever becomes of the record afterwards', async () => {
    const journal = await open();
    const volumes = new Map([['cache', volumeOf(1)]]);
    const writing = journal.write({ podUid, sandboxId: 's', volumes });
    volumes.set('cache', volumeOf(2));
    await writing;
    expect((await journal.load())[0]?.volumes).toEqual(new Map([['cache', volumeOf(1)]]));
  });

  test('go side by side with those of others, and with reading', async () => {
    const journal = await open();
    const writes = Array.from({ length: 400 }, (_, index) => journal.write(numbered(index, uid(index % 40))));
    for (let round = 0; round < 5; round += 1)
      for (const record of await journal.load()) expect(record).toEqual(now(numbered(numberIn(record), record.podUid)));
    await Promise.all(writes);
    expect((await journal.load()).map(numberIn)).toEqual(Array.from({ length: 40 }, (_, index) => 360 + index));
    expect(readdirSync(folder)).toHaveLength(40);
    expect(counters.snapshot().journalFaults).toEqual({});
  });
});

describe('after another boot', () => {
  test('volumes and deferred requests are left, and the rest is dropped', async () => {
    const resizes = [{ id: 'r1', memory: 5 }, null];
    const journal = await open({ bootId: 'boot-1' });
    await journal.write(numbered(1));
    await journal.write({ ...numbered(2, uid(2)), volumes: new Map(), resizes });
    await journal.write({ ...numbered(3, uid(3)), volumes: new Map() });
    const later = await open({ bootId: 'boot-2' });
    // How it was mounted has gone with that boot.
    const { mount, ...withoutMount } = volumeOf(1);
    expect(mount).toBeDefined();
    for (let round = 0; round < 2; round += 1) {
      expect(await later.load()).toEqual([
        { podUid: uid(2), sandboxId: 'sandbox-2', volumes: new Map(), resizes, earlierBoot: true },
        { podUid, sandboxId: 'sandbox-1', volumes: new Map([['cache', withoutMount]]), earlierBoot: true },
      ]);
    }
    expect(readdirSync(folder)).toHaveLength(2);
    await later.write(numbered(4));
    expect(await later.load()).toContainEqual(now(numbered(4)));
  });
});

describe('a bad file', () => {
  const bad: [string, () => void][] = [
    ['empty', () => writeFileSync(path(file), '')],
    ['of an earlier version', () => writeFileSync(path(file), '{"version":2}')],
    ['of another pod', () => renameSync(path(`${uid(2)}.json`), path(file))],
    ['too large', () => truncateSync(path(file), 1024 * 1024 + 1)],
    ['a folder', () => mkdirSync(path(file))],
    ['a symbolic link to a good one', () => symlinkSync(path(`${uid(2)}.json`), path(file))],
    ['a link to nothing', () => symlinkSync('/nothing', path(file))],
    ['a pipe', () => void execFileSync('mkfifo', [path(file)])],
  ];
  test.each(bad)('(%s) is moved aside, counted, logged once, and the others are read', async (_, spoil) => {
    const journal = await open();
    await journal.write(numbered(1));
    await journal.write(numbered(2, uid(2)));
    await journal.write(numbered(3, uid(3)));
    if (!spoil.toString().includes('truncate')) rmSync(path(file));
    spoil();
    expect(await journal.load()).toContainEqual(now(numbered(3, uid(3))));
    expect(await journal.load()).toContainEqual(now(numbered(3, uid(3))));
    expect(existsSync(path(file))).toBe(false);
    expect(lstatSync(path(`${file}.bad`))).toBeDefined();
    expect(counters.snapshot().journalFaults).toEqual({ bad_record: 1 });
    expect(logged).toEqual([
      {
        level: 'error',
        fields: { file: path(file), error: expect.any(String) as unknown, movedTo: `${file}.bad` },
        message: 'journal record unreadable',
      },
    ]);
    await closeAll();
    expect(descriptors()).toEqual([]);
    expect(journal.readiness.ready).toBe(true);
    // Opens the folder again. Node ends a process that leaves that to garbage collection.
    await journal.write(numbered(4));
    expect(await journal.load()).toContainEqual(now(numbered(4)));
    await journal.close();
  });

  test('cut at any byte never makes loading fail, and never gives half a record', async () => {
    const journal = await open();
    await journal.write(numbered(1));
    const content = readFileSync(path(file));
    for (let length = 0; length <= content.length; length += 1) {
      writeFileSync(path(file), content.subarray(0, length));
      expect(await journal.load()).toEqual(length >= content.length - 1 ? [now(numbered(1))] : []);
    }
    expect(counters.snapshot().journalFaults).toEqual({ bad_record: content.length - 1 });
    expect(readdirSync(folder).sort()).toEqual([file, `${file}.bad`]);
    expect(logged).toHaveLength(1);
  });

  test('is kept, the newest sixteen of them', async () => {
    const journal = await open();
    for (let index = 0; index < 30; index += 1) {
      writeFileSync(path(`${uid(index)}.json`), `${index}`);
      await journal.load();
    }
    const kept = readdirSync(folder);
    expect(kept.sort()).toEqual(Array.from({ length: 16 }, (_, index) => `${uid(index + 14)}.json.bad`));
    expect(readFileSync(path(`${uid(20)}.json.bad`), 'utf8')).toBe('20');
  });

  test('that is a leftover of a crash is removed', async () => {
    const journal = await open();
    await journal.write(numbered(1));
    writeFileSync(path(`${file}.tmp`), 'half');
    writeFileSync(path(`${uid(2)}.json.tmp`), 'half');
    expect(await journal.load()).toEqual([now(numbered(1))]);
    expect(readdirSync(folder)).toEqual([file]);
  });

  test("left over from a crash is in nobody's way", async () => {
    const journal = await open();
    for (const leave of [
      (name: string) => writeFileSync(name, 'x'.repeat(100_000)),
      (name: string) => symlinkSync(join(base, 'elsewhere'), name),
    ]) {
      leave(path(`${file}.tmp`));
      await journal.write(numbered(1)).catch(() => journal.write(numbered(1)));
      expect(await journal.load()).toEqual([now(numbered(1))]);
      await journal.remove(podUid);
    }
    expect(readdirSync(base)).toEqual(['state']);
  });
});

describe('a folder', () => {
  test.each([
    [
      'in which others may write',
      () => mkdirSync(folder),
      0o777,
      'the state folder is writable by group or others (mode 777): expected 700',
    ],
    [
      'in which a group may write',
      () => mkdirSync(folder),
      0o770,
      'the state folder is writable by group or others (mode 770): expected 700',
    ],
    ['that is a file', () => writeFileSync(folder, ''), 0o600, 'ENOTDIR'],
  ])(
    '%s is refused until that is mended; reading finds nothing, and nothing is thrown',
    async (_, make, rights, why) => {
      make();
      chmodSync(folder, rights);
      const journal = await open();
      expect(journal.readiness).toMatchObject({ ready: false, error: unavailable({}) });
      expect(await journal.load()).toEqual([]);
      await expect(journal.write(numbered(1))).rejects.toMatchObject(unavailable({ pod: podUid, file: path(file) }));
      await expect(journal.write(numbered(1))).rejects.toThrow(why);
      await expect(journal.remove(podUid)).rejects.toMatchObject(unavailable({ pod: podUid }));
      expect(logged.map(({ message }) => message)).toEqual(['journal unavailable']);
      rmSync(folder, { recursive: true });
      await journal.write(numbered(2));
      expect(journal.readiness).toEqual({ ready: true });
      expect(logged.map(({ message }) => message)).toEqual(['journal unavailable', 'journal writable again']);
      await closeAll();
      expect(descriptors()).toEqual([]);
    },
  );

  test('that vanishes is made again', async () => {
    const journal = await open();
    await journal.write(numbered(1));
    rmSync(folder, { recursive: true });
    await journal.write(numbered(2));
    expect(await journal.load()).toEqual([now(numbered(2))]);
    expect(mode(folder)).toBe('700');
  });

  test('that is mended is found out by a check, which also does the removals that failed, and those only', async () => {
    const journal = await open();
    await journal.write(numbered(1));
    await journal.write(numbered(2, uid(2)));
    renameSync(folder, `${folder}-away`);
    writeFileSync(folder, '');
    for (const name of [podUid, uid(2)]) {
      await expect(journal.remove(name)).rejects.toMatchObject(
        unavailable({ errno: 'ENOTDIR', file: path(`${name}.json`) }),
      );
    }
    expect((await journal.check()).ready).toBe(false);
    rmSync(folder);
    renameSync(`${folder}-away`, folder);
    expect(journal.readiness.ready).toBe(false);
    // A newer record is not removed for an older one's sake, be it under way just now.
    const [, readiness] = await Promise.all([journal.write(numbered(3, uid(2))), journal.check()]);
    expect(readiness).toEqual({ ready: true });
    expect(await (await open()).load()).toEqual([now(numbered(3, uid(2)))]);
    expect(readdirSync(folder)).toEqual([`${uid(2)}.json`]);
  });

  test('that is mended is noticed without a request, and then no more looked at', async () => {
    writeFileSync(folder, '');
    const clock = new FakeClock();
    const journal = await open({ clock });
    const checked = async (): Promise<boolean> => {
      expect(clock.pass(RECHECK_MS)).toBe(1);
      return (await journal.check()).ready;
    };
    expect(await checked()).toBe(false);
    rmSync(folder);
    expect(clock.pass(RECHECK_MS)).toBe(1);
    await expect.poll(() => journal.readiness).toEqual({ ready: true });
    expect(clock.next).toBeUndefined();
    expect(logged.map(({ message }) => message)).toEqual(['journal unavailable', 'journal writable again']);
  });

  test('that was good is looked at anew for who asks, without a request; not again within ten seconds', async () => {
    const clock = new FakeClock();
    const journal = await open({ clock });
    writeFileSync(join(folder, 'kept'), '');
    renameSync(folder, `${folder}-away`);
    writeFileSync(folder, '');
    clock.pass(RECHECK_MS - 1);
    expect(await journal.readinessNow()).toEqual({ ready: true });
    clock.pass(1);
    expect(await journal.readinessNow()).toMatchObject({
      ready: false,
      error: { code: 9, reason: 'JOURNAL_UNAVAILABLE', context: { errno: 'ENOTDIR' } },
    });
    rmSync(folder);
    renameSync(`${folder}-away`, folder);
    expect(clock.pass(RECHECK_MS)).toBe(1);
    await expect.poll(() => journal.readinessNow()).toEqual({ ready: true });
    expect(readdirSync(folder)).toEqual(['kept']);
  });

  test('that hangs is not ready, looked at once for all who ask, and keeps nobody waiting', async () => {
    const clock = new FakeClock();
    const journal = await open({ clock });
    clock.pass(RECHECK_MS);
    let comesBack = (): void => undefined;
    const check = vi
      .spyOn(journal, 'check')
      .mockReturnValue(new Promise((resolve) => (comesBack = () => resolve({ ready: true }))));
    const asked = [journal.readinessNow(), journal.readinessNow()];
    clock.pass(ANSWER_MS);
    for (const readiness of await Promise.all(asked)) {
      expect(readiness).toMatchObject({ ready: false, error: { reason: 'JOURNAL_UNAVAILABLE' } });
    }
    const later = journal.readinessNow();
    expect(check).toHaveBeenCalledTimes(1);
    comesBack();
    expect(await later).toEqual({ ready: true });
    expect(clock.next).toBeUndefined();
  });

  test('is left alone once the journal is closed', async () => {
    writeFileSync(folder, '');
    const clock = new FakeClock();
    const journal = await open({ clock });
    await journal.close();
    expect(clock.next).toBeUndefined();
  });
});
