/**
 * Loaded by the shim before its own modules (`node --import`): measures every synchronous call of node:fs and every C
 * function that koffi calls. SIGUSR2 ends the start; at its end, the process writes what it has measured to the file in
 * BLOCKING_OUT. The shim itself is unchanged.
 */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import loaded from 'koffi';
import { placeOf, placeOfFunction } from './places.ts';
import { type Recorded, Recorder } from './recorder.ts';

type Call = (...args: unknown[]) => unknown;
type Calls = Record<string, unknown>;

const out = process.env['BLOCKING_OUT'] ?? '';
const { writeFileSync } = fs;
const recorder = new Recorder();
const pathsOfDescriptors = new Map<number, string>();
let start: Recorded | undefined;
/** A call of node:fs may make another one. Only the outer one counts. */
let isInside = false;

const pathOf = (target: unknown): string =>
  typeof target === 'number' ? (pathsOfDescriptors.get(target) ?? `descriptor ${target}`) : String(target);

function measured(call: string, original: Call): Call {
  return function (this: unknown, ...args: unknown[]): unknown {
    if (isInside) return original.apply(this, args);
    const path = pathOf(args[0]);
    isInside = true;
    const from = performance.now();
    try {
      const result = original.apply(this, args);
      if (call === 'open') pathsOfDescriptors.set(result as number, path);
      return result;
    } finally {
      recorder.add(call, placeOf(path), path, performance.now() - from);
      isInside = false;
    }
  };
}

const calls = fs as unknown as Calls;
for (const [name, original] of Object.entries(calls))
  if (name.endsWith('Sync') && typeof original === 'function')
    calls[name] = Object.assign(measured(name.slice(0, -'Sync'.length), original as Call), original);
const openHandle = fs.promises.open.bind(fs.promises);
fs.promises.open = async (path, ...more) => {
  const handle = await openHandle(path, ...more);
  pathsOfDescriptors.set(handle.fd, pathOf(path));
  return handle;
};
syncBuiltinESMExports();

interface Library {
  func: (...args: readonly unknown[]) => Call;
}

/** `int flock(int fd, int operation)`, or the name alone. */
const nameOf = (signature: unknown): string => /(\w+)\s*(\(|$)/.exec(String(signature))?.[1] ?? String(signature);

function measuredFunction(library: Library, args: readonly unknown[]): Call {
  const original = library.func(...args);
  const name = nameOf(args[0]);
  const place = placeOfFunction(name);
  return (...given) => {
    const from = performance.now();
    try {
      return original(...given);
    } finally {
      recorder.add('call', place, name, performance.now() - from);
    }
  };
}

const koffi = loaded as unknown as { load: (path: unknown) => Library };
const load = koffi.load.bind(koffi);
koffi.load = (path) => {
  const library = load(path);
  return { func: (...args) => measuredFunction(library, args) };
};

process.once('SIGUSR2', () => (start = recorder.take()));
process.once('exit', () => writeFileSync(out, JSON.stringify({ start, service: recorder.take() })));
