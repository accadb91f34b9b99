import { chmodSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ANSWER_MS, RECHECK_MS } from '../../../src/sandbox/journal/availability.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { FakeClock } from '../../support/resize/fake-resizes.ts';
import { numbered, podUid } from '../../support/journal/numbered.ts';
import { TestFolder, modeOf, ofThisBoot, recordName, uid } from '../../support/journal/test-folder.ts';

let state: TestFolder;
beforeEach(() => {
  state = new TestFolder();
});
afterEach(() => state.remove());

const unavailable = (context: object) => ({
  code: 9,
  reason: 'JOURNAL_UNAVAILABLE',
  context: expect.objectContaining(context) as unknown,
});

describe('the state folder', () => {
  test.each([
    [
      'that is writable by others',
      () => mkdirSync(state.folder),
      0o777,
      'the state folder is writable by group or others (mode 777): expected 700',
    ],
    [
      'that is writable by a group',
      () => mkdirSync(state.folder),
      0o770,
      'the state folder is writable by group or others (mode 770): expected 700',
    ],
    ['that is a file', () => writeFileSync(state.folder, ''), 0o600, 'ENOTDIR'],
  ])('a state folder %s is rejected for writes until it is fixed, and loads as empty', async (_, make, rights, why) => {
    make();
    chmodSync(state.folder, rights);
    const journal = await state.open();
    expect(journal.readiness).toMatchObject({ ready: false, error: unavailable({}) });
    expect(await journal.load()).toEqual([]);
    await expect(journal.write(numbered(1))).rejects.toMatchObject(
      unavailable({ pod: podUid, file: state.path(recordName) }),
    );
    await expect(journal.write(numbered(1))).rejects.toThrow(why);
    await expect(journal.remove(podUid)).rejects.toMatchObject(unavailable({ pod: podUid }));
    expect(state.messages).toEqual(['journal unavailable']);
    rmSync(state.folder, { recursive: true });
    expect(await journal.check()).toEqual({ ready: true });
    await journal.write(numbered(2));
    expect(state.messages).toEqual(['journal unavailable', 'journal writable again']);
    await state.closeAll();
    expect(state.descriptors()).toEqual([]);
  });

  test('creates a removed state folder again', async () => {
    const journal = await state.open();
    await journal.write(numbered(1));
    rmSync(state.folder, { recursive: true });
    await journal.write(numbered(2));
    expect(await journal.load()).toEqual([ofThisBoot(numbered(2))]);
    expect(modeOf(state.folder)).toBe('700');
  });

  test('stores the records of two pods in a state folder that is replaced repeatedly', async () => {
    const journal = await state.open();
    for (let round = 1; round <= 20; round += 1) {
      const replaced = `${state.folder}-${round}`;
      renameSync(state.folder, replaced);
      if (round % 2 === 0) mkdirSync(state.folder, { mode: 0o700 });
      await Promise.all([journal.write(numbered(round, uid(1))), journal.write(numbered(round, uid(2)))]);
      expect(readdirSync(state.folder).sort()).toEqual([`${uid(1)}.json`, `${uid(2)}.json`]);
      rmSync(replaced, { recursive: true });
    }
    expect(state.messages).toEqual([]);
    await expect.poll(() => state.descriptors(), LONG_WAIT).toEqual([state.folder]);
    await state.closeAll();
    expect(state.descriptors()).toEqual([]);
  });

  test('a check recognizes a fixed state folder and repeats failed removals, but removes no newer record', async () => {
    const journal = await state.open();
    await journal.write(numbered(1));
    await journal.write(numbered(2, uid(2)));
    renameSync(state.folder, `${state.folder}-away`);
    writeFileSync(state.folder, '');
    for (const name of [podUid, uid(2)]) {
      await expect(journal.remove(name)).rejects.toMatchObject(
        unavailable({ errno: 'ENOTDIR', file: state.path(`${name}.json`) }),
      );
    }
    expect((await journal.check()).ready).toBe(false);
    rmSync(state.folder);
    renameSync(`${state.folder}-away`, state.folder);
    expect(journal.readiness.ready).toBe(false);
    // A failed removal is not repeated when a newer record is being written.
    const [, readiness] = await Promise.all([journal.write(numbered(3, uid(2))), journal.check()]);
    expect(readiness).toEqual({ ready: true });
    expect(await (await state.open()).load()).toEqual([ofThisBoot(numbered(3, uid(2)))]);
    expect(readdirSync(state.folder)).toEqual([`${uid(2)}.json`]);
  });

  test('a timer recognizes a fixed state folder, and then stops', async () => {
    writeFileSync(state.folder, '');
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    const checked = async (): Promise<boolean> => {
      expect(clock.pass(RECHECK_MS)).toBe(1);
      return (await journal.check()).ready;
    };
    expect(await checked()).toBe(false);
    rmSync(state.folder);
    expect(clock.pass(RECHECK_MS)).toBe(1);
    await expect.poll(() => journal.readiness, LONG_WAIT).toEqual({ ready: true });
    expect(clock.next).toBeUndefined();
    expect(state.messages).toEqual(['journal unavailable', 'journal writable again']);
  });

  test('a timer stores the last record of each pod in a fixed state folder, even after a successful write of another pod', async () => {
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    await journal.write(numbered(1, uid(1)));
    await journal.write(numbered(1, uid(2)));
    renameSync(state.folder, `${state.folder}-away`);
    writeFileSync(state.folder, '');
    await expect(journal.write(numbered(2, uid(1)))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    await expect(journal.remove(uid(2))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    rmSync(state.folder);
    renameSync(`${state.folder}-away`, state.folder);
    await journal.write(numbered(1, uid(3)));
    expect(journal.readiness).toEqual({ ready: true });
    expect(clock.pass(RECHECK_MS)).toBe(1);
    await expect.poll(() => readdirSync(state.folder).sort(), LONG_WAIT).toEqual([`${uid(1)}.json`, `${uid(3)}.json`]);
    const found = await (await state.open()).load();
    expect(found).toEqual(expect.arrayContaining([ofThisBoot(numbered(2, uid(1)))]));
  });

  test('a check stores the record of a pod although the file of another pod still cannot be changed', async () => {
    const journal = await state.open();
    await journal.write(numbered(1, uid(1)));
    rmSync(state.path(`${uid(1)}.json`));
    mkdirSync(state.path(`${uid(1)}.json/occupied`), { recursive: true });
    await expect(journal.remove(uid(1))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    mkdirSync(state.path(`${uid(2)}.json/occupied`), { recursive: true });
    await expect(journal.write(numbered(2, uid(2)))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    rmSync(state.path(`${uid(2)}.json`), { recursive: true });
    await journal.check();
    expect(JSON.parse(readFileSync(state.path(`${uid(2)}.json`), 'utf8'))).toMatchObject({ podUid: uid(2) });
    expect((await journal.check()).ready).toBe(false);
    rmSync(state.path(`${uid(1)}.json`), { recursive: true });
    expect(await journal.check()).toEqual({ ready: true });
  });

  test('readinessNow checks a writable state folder again, at most once in ten seconds', async () => {
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    writeFileSync(join(state.folder, 'marker'), '');
    renameSync(state.folder, `${state.folder}-away`);
    writeFileSync(state.folder, '');
    clock.pass(RECHECK_MS - 1);
    expect(await journal.readinessNow()).toEqual({ ready: true });
    clock.pass(1);
    expect(await journal.readinessNow()).toMatchObject({
      ready: false,
      error: { code: 9, reason: 'JOURNAL_UNAVAILABLE', context: { errno: 'ENOTDIR' } },
    });
    rmSync(state.folder);
    renameSync(`${state.folder}-away`, state.folder);
    expect(clock.pass(RECHECK_MS)).toBe(1);
    await expect.poll(() => journal.readinessNow(), LONG_WAIT).toEqual({ ready: true });
    expect(readdirSync(state.folder)).toEqual(['marker']);
  });

  test('readinessNow checks the state folder again after ten seconds although the system time was set back', async () => {
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    clock.setSystemTime(-3_600_000);
    clock.pass(RECHECK_MS);
    rmSync(state.folder, { recursive: true });
    writeFileSync(state.folder, '');
    expect((await journal.readinessNow()).ready).toBe(false);
  });

  test('a state folder that hangs is not ready, is checked once for all callers, and does not block them', async () => {
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    clock.pass(RECHECK_MS);
    let answerCheck = (): void => undefined;
    const check = vi
      .spyOn(journal, 'check')
      .mockReturnValue(new Promise((resolve) => (answerCheck = () => resolve({ ready: true }))));
    const asked = [journal.readinessNow(), journal.readinessNow()];
    clock.pass(ANSWER_MS);
    for (const readiness of await Promise.all(asked)) {
      expect(readiness).toMatchObject({ ready: false, error: { reason: 'JOURNAL_UNAVAILABLE' } });
    }
    const later = journal.readinessNow();
    expect(check).toHaveBeenCalledTimes(1);
    answerCheck();
    expect(await later).toEqual({ ready: true });
    expect(clock.next).toBeUndefined();
  });

  test('a state folder that hangs is checked once, regardless of the number of slow writes', async () => {
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    const { promise, resolve } = Promise.withResolvers<{ ready: true }>();
    const check = vi.spyOn(journal, 'check').mockReturnValue(promise);
    // A record that cannot be replaced stands for a write that takes too long: both make the journal unavailable.
    mkdirSync(state.path(`${uid(1)}.json/occupied`), { recursive: true });
    for (let writes = 0; writes < 3; writes += 1) {
      await expect(journal.write(numbered(1, uid(1)))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
      expect(clock.pass(RECHECK_MS)).toBe(1);
    }
    expect(check).toHaveBeenCalledTimes(1);
    resolve({ ready: true });
    await promise;
    await expect(journal.write(numbered(1, uid(1)))).rejects.toMatchObject({ reason: 'JOURNAL_UNAVAILABLE' });
    clock.pass(RECHECK_MS);
    expect(check).toHaveBeenCalledTimes(2);
  });

  test('stops the checks of the state folder when the journal is closed', async () => {
    writeFileSync(state.folder, '');
    const clock = new FakeClock();
    const journal = await state.open({ clock });
    await journal.close();
    expect(clock.next).toBeUndefined();
  });
});
