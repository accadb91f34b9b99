import { expect, test } from 'vitest';
import { screenshot } from './screenshot.ts';

const noFrame = new Error('page.screenshot: Protocol error (Page.captureScreenshot): Unable to capture screenshot');

/** A page whose first captures fail. */
function failing(captures: number, error = noFrame) {
  const done = { captures: 0, frames: 0 };
  const page = {
    screenshot: () => Promise.resolve(Buffer.from('png')),
    evaluate: () => Promise.resolve((done.frames += 1)) as Promise<never>,
  };
  page.screenshot = () => {
    done.captures += 1;
    return done.captures > captures ? Promise.resolve(Buffer.from('png')) : Promise.reject(error);
  };
  return { done, page };
}

test('a capture that Chromium refuses is repeated with the next frame', async () => {
  const { done, page } = failing(4);
  expect((await screenshot(page)).toString()).toBe('png');
  expect(done).toEqual({ captures: 5, frames: 4 });
});

test('a screenshot fails after five refused captures', async () => {
  const { done, page } = failing(5);
  await expect(screenshot(page)).rejects.toThrow('Unable to capture screenshot');
  expect(done.captures).toBe(5);
});

test('a screenshot fails at once after any other error', async () => {
  const { done, page } = failing(1, new Error('Target closed'));
  await expect(screenshot(page)).rejects.toThrow('Target closed');
  expect(done.captures).toBe(1);
});
