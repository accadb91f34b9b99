/**
 * Loaded by the shim before its own modules (`node --import`): makes calls of node:fs fail as the file in CHAOS_FAULTS
 * says, and moves the time of day. The shim itself is unchanged.
 */
import fs, { type PathLike } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { errorOf, FaultCounter, type Faults, NO_FAULTS } from './rules.ts';

type Call = (...args: unknown[]) => unknown;
type Calls = Record<string, Call>;

const file = process.env['CHAOS_FAULTS'] ?? '';
const REFRESH_MS = 20;
const { readFileSync } = fs;
const counter = new FaultCounter();
const pathsOfFds = new Map<number, string>();
const pathsOfHandles = new WeakMap<object, string>();
let faults: Faults = NO_FAULTS;
/** Calls that do not return until the fault ends. */
const hanging: (() => void)[] = [];

function refresh(): void {
  try {
    faults = JSON.parse(readFileSync(file, 'utf8')) as Faults;
  } catch {
    faults = NO_FAULTS;
  }
  if (faults.rules.some(({ code }) => code === 'HANG')) return;
  for (const go of hanging.splice(0)) go();
}

/** Throws if this call is to fail. Returns a promise for a call that hangs. */
function check(call: string, path: string): Promise<void> | undefined {
  if (path === '' || path === file) return undefined;
  const code = counter.codeOf(faults, call, path);
  if (code === 'HANG') return new Promise((resolve) => hanging.push(resolve));
  if (code !== undefined) throw errorOf(code, call, path);
  return undefined;
}

const isPath = (value: unknown): value is PathLike => typeof value === 'string' || value instanceof URL;
const pathOf = (target: unknown): string => {
  if (typeof target === 'number') return pathsOfFds.get(target) ?? '';
  return isPath(target) ? String(target) : '';
};

function patch(calls: Calls, name: string, make: (original: Call) => Call): void {
  const original = calls[name];
  if (original === undefined) throw new Error(`node:fs has no ${name}`);
  calls[name] = make(original);
}

const sync = fs as unknown as Calls;
for (const name of ['openSync', 'readSync', 'readFileSync', 'readdirSync', 'statSync'])
  patch(sync, name, (original) => (target, ...more) => {
    void check(name.replace('Sync', ''), pathOf(target));
    const result = original.call(fs, target, ...more);
    if (name === 'openSync') pathsOfFds.set(result as number, pathOf(target));
    return result;
  });

const promises = fs.promises as unknown as Calls;
for (const name of ['open', 'readFile', 'readdir', 'rename', 'unlink', 'statfs', 'access'])
  patch(promises, name, (original) => async (target, ...more) => {
    await check(name, pathOf(target));
    const result = await original.call(fs.promises, target, ...more);
    if (name === 'open') pathsOfHandles.set(result as object, pathOf(target));
    return result;
  });

const some = await fs.promises.open('/dev/null');
const handles = Object.getPrototypeOf(some) as Calls;
await some.close();
for (const name of ['sync', 'write', 'readFile'])
  patch(
    handles,
    name,
    (original) =>
      async function (this: object, ...args: unknown[]) {
        await check(name, pathsOfHandles.get(this) ?? '');
        return original.apply(this, args);
      },
  );

const now = Date.now.bind(Date);
Date.now = () => now() + faults.clockMs;
syncBuiltinESMExports();
refresh();
setInterval(refresh, REFRESH_MS).unref();
