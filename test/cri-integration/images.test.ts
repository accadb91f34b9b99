import { expect, test } from 'vitest';
import { ImageBuilder } from '../conformance/images/oci.ts';
import { imageList, suiteImages } from './images.ts';

const images = suiteImages(Buffer.from('busybox'), ['sh']);

test('the image list names the image that tests pull by digest by the digest of its tagged image', () => {
  const image = images.get('containerd/busybox:1.36');
  if (image === undefined) throw new Error('no image of busybox');
  const { digest } = new ImageBuilder().build(image).manifest;
  expect(imageList(images)).toBe(`BusyBoxByDigest = "ghcr.io/containerd/busybox@${digest}"\n`);
});

test('an image with a volume names it in its configuration, and its layer sets the owner of the content', () => {
  const image = images.get('containerd/volume-ownership:2.1');
  if (image === undefined) throw new Error('no image with a volume');
  const { blobs } = new ImageBuilder().build(image);
  const [config, , layer] = blobs;
  expect(JSON.parse(config?.content.toString() ?? '')).toMatchObject({ config: { Volumes: { '/test_dir': {} } } });
  // The fields of user and group in the header of the layer's first entry, in octal: 65534.
  expect(layer?.content.toString('latin1', 108, 124)).toBe('0177776\u00000177776\u0000');
});
