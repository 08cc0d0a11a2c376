// The codecs that KafkaJS leaves to its users.
'use strict';

const { CompressionCodecs, CompressionTypes } = require('kafkajs');
const zstd = require('@bokuweb/zstd-wasm');
const lz4 = require('lz4-napi');
const snappy = require('snappyjs');

// The framing that the Java client gives to snappy: this header, then blocks with their lengths.
const XERIAL_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00]);
const XERIAL_HEADER_BYTES = 16;

async function installCodecs() {
  await zstd.init();
  CompressionCodecs[CompressionTypes.Snappy] = codec(snappy.compress, unframedSnappy);
  CompressionCodecs[CompressionTypes.LZ4] = codec(lz4.compressFrameSync, lz4.decompressFrameSync);
  CompressionCodecs[CompressionTypes.ZSTD] = codec(zstd.compress, zstd.decompress);
}

function codec(compress, decompress) {
  return () => ({
    compress: async (encoder) => Buffer.from(compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(decompress(buffer)),
  });
}

function unframedSnappy(buffer) {
  if (!buffer.subarray(0, XERIAL_MAGIC.length).equals(XERIAL_MAGIC)) {
    return snappy.uncompress(buffer);
  }
  const blocks = [];
  for (let at = XERIAL_HEADER_BYTES; at < buffer.length;) {
    const size = buffer.readInt32BE(at);
    blocks.push(snappy.uncompress(buffer.subarray(at + 4, at + 4 + size)));
    at += 4 + size;
  }
  return Buffer.concat(blocks);
}

module.exports = { installCodecs };
