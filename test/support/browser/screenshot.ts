import type { Page, PageScreenshotOptions } from 'playwright-core';

/** The answer of Chromium on a busy machine when it has no frame of the page. The next capture succeeds. */
const NO_FRAME = 'Unable to capture screenshot';
const MOST_CAPTURES = 5;

/** Takes a screenshot. Where Chromium has no frame of the page, waits for the next one. Rejects after five captures. */
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
