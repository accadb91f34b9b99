import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ExecaError, execa } from 'execa';

/**
 * The .deb of this project, installed with an empty dpkg database, so that dpkg does not read the packages of the
 * machine below, each file of which takes a descriptor of the node's kernel.
 */
export class DebPackage {
  /** Has the package and the database of dpkg. */
  readonly folder = mkdtempSync(join(tmpdir(), 'packages-'));

  private constructor() {
    const database = this.#database;
    for (const name of ['info', 'updates']) mkdirSync(join(database, name), { recursive: true });
    for (const file of ['status', 'available']) writeFileSync(join(database, file), '');
  }

  /** Makes the package. */
  static async make(): Promise<DebPackage> {
    const deb = new DebPackage();
    await execa(process.execPath, ['dist/tools/package.js', '--only', 'deb', '--to', deb.folder]);
    return deb;
  }

  async install(): Promise<void> {
    await this.#dpkg('--install', this.#file);
  }

  /** Resolves also if dpkg rejects the removal. */
  async remove(): Promise<{ readonly exitCode: number | undefined; readonly all: string }> {
    const { exitCode, all } = await this.#dpkg('--remove', 'cri-resize-shim').catch((error: unknown) => {
      if (error instanceof ExecaError) return error;
      throw error;
    });
    return { exitCode, all: String(all) };
  }

  dispose(): void {
    rmSync(this.folder, { recursive: true });
  }

  #dpkg(...args: readonly string[]) {
    return execa('dpkg', [`--admindir=${this.#database}`, '--force-depends', ...args], { all: true });
  }

  get #file(): string {
    const name = readdirSync(this.folder).find((entry) => entry.endsWith('.deb'));
    if (name === undefined) throw new Error(`no .deb in ${this.folder}`);
    return join(this.folder, name);
  }

  get #database(): string {
    return join(this.folder, 'dpkg');
  }
}
