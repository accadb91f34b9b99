import type { Fault } from './faults.ts';
import { diskFaults, processFaults } from './faults.ts';
import { runtimeFaults } from './runtime.ts';

export const faults: readonly Fault[] = [...diskFaults, ...processFaults, ...runtimeFaults];
