import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { errnoOf, messageOf, NodeError } from '../../../../tools/download/errors.ts';
import type { Progress } from '../../../../tools/download/progress.ts';
import { timed } from '../../../../tools/download/progress.ts';

export type Suite = 'bookworm' | 'trixie' | 'trixie-backports' | 'forky';

export interface DebianPackage {
  readonly name: string;
  readonly suite: Suite;
  /** Represents its first dependency, whose name changes with its version. */
  readonly isMeta?: true;
}

export interface DownloadedPackage extends DebianPackage {
  readonly version: string;
  readonly file: string;
}

/** An index of Debian's archive as this machine reaches it, in apt's terms. */
export interface IndexTarget {
  readonly site: string;
  readonly release: string;
  readonly label: string;
}

const mirrorVariable = 'CRI_RESIZE_SHIM_DEBIAN_MIRROR';
const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg';

export function parseIndexTargets(output: string): IndexTarget[] {
  return output.split('\n').flatMap((line) => {
    const [site = '', release = '', label = ''] = line.split('|').map((field) => field.trim());
    return site === '' || release === '' ? [] : [{ site, release, label: label.startsWith('$(') ? '' : label }];
  });
}

/**
 * Returns the site that carries complete Debian suites. A security or updates suite is on a separate site or has only a
 * few packages. Sites of vendors are recognized by the label in their release file if apt has fetched it, and are
 * otherwise rejected later, when apt checks Debian's signature.
 */
export function chooseSite(targets: readonly IndexTarget[]): string | undefined {
  const whole = targets.filter((target) => !target.release.includes('-') && !target.release.includes('/'));
  const labelled = whole.filter((target) => target.label === 'Debian');
  const unlabelled = whole.filter((target) => target.label === '' && /\/debian$/.test(target.site));
  return (labelled[0] ?? unlabelled[0])?.site;
}

/** Parses a line of `apt-get download --print-uris`: 'URI' file size hash. */
export function parsePrintedUri(line: string): { file: string; bytes: number } | undefined {
  const match = /^'[^']+' (\S+) (\d+)/.exec(line.trim());
  return match?.[1] === undefined ? undefined : { file: match[1], bytes: Number(match[2]) };
}

/** Parses name_version_architecture.deb, in which the colon of the version is escaped. */
export function versionOfFile(file: string): string {
  return decodeURIComponent(file.split('_')[1] ?? '');
}

/** Parses a list of dependencies: name (= version), other | alternative. */
export function firstDependency(list: string): string | undefined {
  return /^[^\s,|(]+/.exec(list.trim())?.[0];
}

/** Returns "2.1.9" for "2.1.9+ds1-5", "1.7.24" for "1.7.24~ds1-6", "1.38.0" for "1:1.38.0-3+b1". */
export function upstreamVersion(version: string): string {
  return /^(?:\d+:)?(\d+(?:\.\d+)*)/.exec(version)?.[1] ?? version;
}

/** Formats a list for messages. The first packages show what the others are for. */
export function listOf(wanted: readonly DebianPackage[]): string {
  const names = wanted.map(({ name, suite }) => `${name} (${suite})`);
  return names.length <= 10 ? names.join(', ') : `${names.slice(0, 3).join(', ')} and ${names.length - 3} more`;
}

async function mirror(): Promise<string> {
  const chosen = process.env[mirrorVariable];
  if (chosen) return chosen;
  const advice = `set ${mirrorVariable} to the URL of a Debian mirror (the folder that contains "dists")`;
  const format = '$(SITE)|$(RELEASE)|$(LABEL)';
  const targets: IndexTarget[] = [];
  // Without release information apt also lists files that it has not fetched yet, but without labels.
  for (const extra of [[], ['--no-release-info']]) {
    const { stdout } = await run(
      'apt-get',
      ['indextargets', ...extra, '--format', format],
      `apt-get does not run here: ${advice}`,
    );
    targets.push(...parseIndexTargets(stdout));
  }
  const site = chooseSite(targets);
  if (site === undefined)
    throw new NodeError(`none of apt's sources on this machine is Debian's own archive: ${advice}`);
  return site;
}

/**
 * apt with its own lists and folders, which `close` removes. The apt state of the machine does not change. Signatures
 * are checked.
 */
export class Archive {
  private constructor(
    private readonly options: readonly string[],
    private readonly folder: string,
  ) {}

  static async open(suites: readonly Suite[], progress: Progress): Promise<Archive> {
    const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-apt-'));
    for (const name of ['lists/partial', 'archives/partial', 'sources'])
      await mkdir(join(folder, name), { recursive: true });
    const source = [
      'Types: deb',
      `URIs: ${await mirror()}`,
      `Suites: ${suites.join(' ')}`,
      'Components: main',
      'Architectures: amd64',
      `Signed-By: ${keyring}`,
    ];
    await writeFile(join(folder, 'sources/debian.sources'), `${source.join('\n')}\n`);
    await writeFile(join(folder, 'status'), '');
    const settings = {
      'Dir::Etc::SourceList': '/dev/null',
      'Dir::Etc::SourceParts': join(folder, 'sources'),
      'Dir::Etc::Preferences': '/dev/null',
      'Dir::Etc::PreferencesParts': '/dev/null',
      'Dir::State': folder,
      'Dir::State::Lists': join(folder, 'lists'),
      'Dir::State::status': join(folder, 'status'),
      'Dir::Cache': folder,
      // Images of containers turn these off, and then each call parses the whole index again.
      'Dir::Cache::pkgcache': 'pkgcache.bin',
      'Dir::Cache::srcpkgcache': 'srcpkgcache.bin',
      'APT::Architecture': 'amd64',
      'APT::Architectures': 'amd64',
      // apt's own user may have no write access to the cache.
      'APT::Sandbox::User': process.env['USER'] ?? 'root',
      'Acquire::Languages': 'none',
      'Acquire::PDiffs': 'false',
      'Acquire::Retries': '3',
      'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled': 'false',
    };
    const archive = new Archive(
      Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]),
      folder,
    );
    const what = `reading the package index of Debian ${suites.join(', ')}`;
    try {
      await timed(progress, what, () =>
        archive.apt(
          ['update', '--error-on=any'],
          `${what} failed; check the network, or choose another mirror with ${mirrorVariable}; ` +
            'a signature that cannot be checked needs a newer debian-archive-keyring package',
        ),
      );
    } catch (error) {
      await archive.close();
      throw error;
    }
    return archive;
  }

  async close(): Promise<void> {
    await rm(this.folder, { recursive: true, force: true });
  }

  /** Downloads the newest versions of their suites. apt checks each file against the signed index. */
  async fetch(requested: readonly DebianPackage[], progress: Progress): Promise<DownloadedPackage[]> {
    const metas = requested.filter(({ isMeta }) => isMeta);
    const meant = metas.length === 0 ? [] : await this.dependenciesOf(metas, progress);
    return this.download([...meant, ...requested.filter(({ isMeta }) => !isMeta)], progress);
  }

  private async dependenciesOf(metas: readonly DebianPackage[], progress: Progress): Promise<DebianPackage[]> {
    const dependencies: DebianPackage[] = [];
    for (const { name, suite, file } of await this.download(metas, progress)) {
      const { stdout } = await run('dpkg-deb', ['-f', file, 'Depends'], `the package ${name} is damaged`);
      const dependency = firstDependency(stdout);
      if (dependency === undefined) throw new NodeError(`the package ${name} of Debian ${suite} has no dependency`);
      dependencies.push({ name: dependency, suite });
    }
    return dependencies;
  }

  private async download(wanted: readonly DebianPackage[], progress: Progress): Promise<DownloadedPackage[]> {
    const selectors = wanted.map(({ name, suite }) => `${name}/${suite}`);
    const list = listOf(wanted);
    const failed = `downloading the packages ${list} failed; run the command again, or choose another mirror with ${mirrorVariable}`;
    const folder = await mkdtemp(join(this.folder, 'archives', 'set-'));
    const printed = await this.apt(['download', '--print-uris', ...selectors], failed, folder);
    const files = printed.split('\n').flatMap((line) => parsePrintedUri(line) ?? []);
    const size = files.reduce((total, { bytes }) => total + bytes, 0) / 1e6;
    await timed(progress, `downloading ${list}: ${size.toFixed(1)} MB`, () =>
      this.apt(['download', ...selectors], failed, folder),
    );
    const names = await readdir(folder);
    return wanted.map((one) => {
      const file = names.find((name) => name.startsWith(`${one.name}_`) && name.endsWith('.deb'));
      if (file === undefined)
        throw new NodeError(`apt left no file for the package ${one.name} of Debian ${one.suite}; ${failed}`);
      return { ...one, version: versionOfFile(file), file: join(folder, file) };
    });
  }

  private async apt(args: readonly string[], failed: string, cwd = this.folder): Promise<string> {
    return (await run('apt-get', ['-q', ...this.options, ...args], failed, cwd)).stdout;
  }
}

export async function unpack(file: DownloadedPackage, folder: string): Promise<void> {
  await run(
    'dpkg-deb',
    ['-x', file.file, folder],
    `the package ${file.name} ${file.version} is damaged: run the command again to replace it`,
  );
}

async function run(
  command: string,
  args: readonly string[],
  failed: string,
  cwd?: string,
): Promise<{ stdout: string }> {
  try {
    return await execa(command, args, { ...(cwd === undefined ? {} : { cwd }), stdin: 'ignore' });
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') throw new NodeError(`${failed} (${command} is not installed)`);
    const said = error instanceof Error && 'stderr' in error ? String(error.stderr) : messageOf(error);
    throw new NodeError(`${failed}\n${said.trim()}`);
  }
}
