import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Children } from '../children.ts';
import { readRecording } from './recording.ts';
import { playRounds } from './rounds.ts';

/**
 * Runs in the test node as `bench-load-inside FILE ROUNDS SPEED`. Plays a recording to measure the shim's CPU time on
 * the kernel on which containerd was recorded. Writes the shim's {@link CpuTime} to the output folder of the node.
 */
export const CPU_FILE = 'load-cpu.json';

export async function playInside(file: string, rounds: number, speed: number, out: string): Promise<void> {
  const children = new Children();
  const { cpu } = await playRounds({ children, file, recording: readRecording(file), rounds, speed });
  writeFileSync(join(out, CPU_FILE), JSON.stringify(cpu));
}
