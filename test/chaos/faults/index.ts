import { diskFaults } from './disk.ts';
import type { Fault } from './fault.ts';
import { processFaults } from './process.ts';
import { runtimeFaults } from './runtime.ts';

export const faults: readonly Fault[] = [...diskFaults, ...processFaults, ...runtimeFaults];
