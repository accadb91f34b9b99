import { cp, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import type { Page, PageScreenshotOptions } from 'playwright-core';
import { cacheRoot } from '../../../tools/download/places.ts';
import type { Progress } from '../../../tools/download/progress.ts';
import type { PackagedPart } from '../node/parts/packaged.ts';
import { keepLibraries, loader, obtainPackaged, of, triplet } from '../node/parts/packaged.ts';

/**
 * Debian's headless Chromium with all libraries that it links to, so that the machine needs neither Chromium nor
 * desktop libraries.
 */
const chromiumPart: PackagedPart = {
  name: 'chromium',
  packages: [
    ...of('bookworm', 'chromium-headless-shell', 'chromium-common', 'fonts-dejavu-core', 'patchelf'),
    // The C library and basic libraries.
    ...of('bookworm', 'libc6', 'libgcc-s1', 'libstdc++6', 'libbsd0', 'libmd0', 'libffi8', 'zlib1g', 'libzstd1'),
    ...of('bookworm', 'liblz4-1', 'liblzma5', 'libbrotli1', 'libexpat1', 'libdouble-conversion3', 'libpcre2-8-0'),
    ...of('bookworm', 'libgcrypt20', 'libgpg-error0', 'libminizip1', 'libnspr4', 'libnss3'),
    ...of('bookworm', 'libglib2.0-0', 'libdbus-1-3', 'libsystemd0', 'libudev1', 'libcap2', 'libselinux1'),
    ...of('bookworm', 'libmount1', 'libblkid1', 'libatk1.0-0', 'libatspi2.0-0'),
    // Fonts and images.
    ...of('bookworm', 'libfontconfig1', 'libfreetype6', 'libharfbuzz0b', 'libharfbuzz-subset0', 'libgraphite2-3'),
    ...of('bookworm', 'libpng16-16', 'libjpeg62-turbo', 'libdav1d6', 'libopenh264-7', 'libdrm2', 'libgbm1'),
    // A display. Chromium links to it but does not use it.
    ...of('bookworm', 'libwayland-server0', 'libx11-6', 'libx11-xcb1', 'libxau6', 'libxcb1', 'libxcomposite1'),
    ...of('bookworm', 'libxdamage1', 'libxdmcp6', 'libxext6', 'libxfixes3', 'libxi6', 'libxkbcommon0', 'libxnvctrl0'),
    ...of('bookworm', 'libxrandr2', 'libxrender1'),
    // Sound. Chromium links to it but does not use it.
    ...of('bookworm', 'libasound2', 'libasyncns0', 'libflac12', 'libmp3lame0', 'libmpg123-0', 'libogg0', 'libopus0'),
    ...of('bookworm', 'libpulse0', 'libsndfile1', 'libvorbis0a', 'libvorbisenc2'),
  ],
  revision: 2,
  async arrange(unpacked, folder, finalFolder) {
    const program = join(unpacked, 'usr/lib/chromium');
    // Omits files for debugging graphics, and other languages.
    const left = ['locales', 'libVkLayer_khronos_validation.so', 'libVkICD_mock_icd.so', 'chrome_crashpad_handler'];
    for (const name of await readdir(program))
      if (!left.includes(name)) await cp(join(program, name), join(folder, 'bin', name), { recursive: true });
    await cp(join(program, 'locales/en-US.pak'), join(folder, 'bin/locales/en-US.pak'));
    await keepLibraries(unpacked, join(folder, 'lib'));
    await cp(join(unpacked, 'usr/lib', triplet, 'pulseaudio'), join(folder, 'lib'), { recursive: true });
    // An RPATH, not a RUNPATH, because it also applies to the libraries of libraries. libpulse has its own RUNPATH.
    const patchelf = join(unpacked, 'usr/bin/patchelf');
    const lib = join(finalFolder, 'lib');
    const rpath = ['--force-rpath', '--set-rpath', lib];
    await execa(patchelf, ['--set-interpreter', join(lib, loader), ...rpath, join(folder, 'bin', executable)]);
    await execa(patchelf, [...rpath, join(folder, 'lib/libpulse.so.0')]);
    await cp(join(unpacked, 'usr/share/fonts/truetype/dejavu'), join(folder, 'fonts'), { recursive: true });
    await writeFile(join(folder, fontSettings), fontsIn(join(finalFolder, 'fonts')));
  },
};

const executable = 'chromium-headless-shell';
const fontSettings = 'fonts.conf';

/** Offers only the fonts of the package, so that the page looks the same on every machine. */
function fontsIn(folder: string): string {
  const prefer = (generic: string, font: string): string =>
    `<alias binding="same"><family>${generic}</family><prefer><family>${font}</family></prefer></alias>`;
  return [
    '<?xml version="1.0"?>',
    '<!DOCTYPE fontconfig SYSTEM "fonts.dtd">',
    '<fontconfig>',
    `<dir>${folder}</dir>`,
    prefer('system-ui', 'DejaVu Sans'),
    prefer('sans-serif', 'DejaVu Sans'),
    prefer('monospace', 'DejaVu Sans Mono'),
    '</fontconfig>\n',
  ].join('\n');
}

export interface Chromium {
  readonly program: string;
  /** The variables that Chromium needs. */
  readonly env: Readonly<Record<string, string>>;
  readonly version: string;
}

/** Chromium from the cache of the test node's parts. Builds it the first time. */
export async function prepareChromium(progress: Progress): Promise<Chromium> {
  const [{ folder, versions }] = await obtainPackaged(cacheRoot(), [chromiumPart], progress);
  return {
    program: join(folder, 'bin', executable),
    env: { FONTCONFIG_FILE: join(folder, fontSettings) },
    version: versions[executable] ?? '',
  };
}

/** The answer of Chromium on a busy machine when it has no frame of the page. The next capture succeeds. */
const NO_FRAME = 'Unable to capture screenshot';
const MOST_CAPTURES = 5;

/** Takes a screenshot. If Chromium has no frame of the page, waits for the next frame. Rejects after five captures. */
export async function screenshot(
  page: Pick<Page, 'screenshot' | 'evaluate'>,
  options?: PageScreenshotOptions,
): Promise<Buffer> {
  for (let captures = 1; ; captures += 1) {
    try {
      return await page.screenshot(options);
    } catch (error) {
      if (captures === MOST_CAPTURES || !(error instanceof Error) || !error.message.includes(NO_FRAME)) throw error;
      await page.evaluate('new Promise((resolve) => requestAnimationFrame(resolve))');
    }
  }
}
