# SPDX-License-Identifier: Apache-2.0
"""vision: a small residual network on PyTorch: convolution, batch norm and relu, the cuDNN path.

Images are a pattern of their class under noise, drawn at the start from --seed and cycled through; SGD with
momentum, cross entropy. Inference classifies a batch in eval mode, with the statistics that one batch of
training leaves. On a GPU cuDNN may try its algorithms on the first batch (torch.backends.cudnn.benchmark), as
training scripts set it.
"""
import collections
import sys

import cli  # before torch: it sets the thread counts
import common
import torch
from changes import augment_images
from torch import nn
from torch.nn import functional

CLASSES = 10
# stages: channels of each, halved in height and width from one to the next; blocks: in each stage
SIZES = {
    "small": dict(image=12, stages=(8, 16), blocks=1, batch=4, pool=8),
    "demo": dict(image=24, stages=(16, 32, 64), blocks=1, batch=8, pool=16),
    "large": dict(image=224, stages=(64, 128, 256, 512), blocks=2, batch=64, pool=2),
}


class Data:
    """A pool of batches: images [batch, 3, image, image], classes [batch]."""

    def __init__(self, args, size):
        draw = common.Draw(args.seed, "vision/" + args.mode)
        shape = (3, size["image"], size["image"])
        pixels = shape[0] * shape[1] * shape[2]
        patterns = common.Draw(args.seed, "vision/patterns").uniform(CLASSES * pixels).reshape(CLASSES, pixels) - 0.5
        self.batches = []
        for _ in range(size["pool"]):
            classes = draw.integers(size["batch"], CLASSES)
            noise = draw.uniform(size["batch"] * pixels).reshape(size["batch"], pixels) * 2 - 1
            images = torch.from_numpy(noise + patterns[classes]).to(args.torch_dtype).view(-1, *shape)
            tensors = [images, torch.from_numpy(classes)]
            self.batches.append([value.pin_memory() for value in tensors] if common.pins(args) else tensors)


def _conv(inputs, outputs, kernel, stride):
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(collections.OrderedDict(
            conv1=_conv(inputs, outputs, 3, stride), norm1=nn.BatchNorm2d(outputs), relu=nn.ReLU(),
            conv2=_conv(outputs, outputs, 3, 1), norm2=nn.BatchNorm2d(outputs)))
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(collections.OrderedDict(
                conv=_conv(inputs, outputs, 1, stride), norm=nn.BatchNorm2d(outputs)))

    def forward(self, x):
        return functional.relu(self.body(x) + self.shortcut(x))


class Vision(nn.Module):
    def __init__(self, size):
        super().__init__()
        stages = size["stages"]
        self.stem = nn.Sequential(collections.OrderedDict(
            conv=_conv(3, stages[0], 3, 1 if size["image"] < 64 else 4), norm=nn.BatchNorm2d(stages[0]), relu=nn.ReLU()))
        blocks, inputs = [], stages[0]
        for stage, outputs in enumerate(stages):
            for k in range(size["blocks"]):
                blocks.append(Block(inputs, outputs, 2 if stage and k == 0 else 1))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(inputs, CLASSES)

    def forward(self, images):
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(2, 3)))


class Work:
    def __init__(self, args):
        size = SIZES[args.size]
        torch.backends.cudnn.benchmark = "nobenchmark" not in args.plant.flags
        self.model = common.prepare(args, Vision(size))
        self._layout = torch.channels_last if "channelslast" in args.plant.flags else torch.contiguous_format
        self.model.to(memory_format=self._layout)
        self._args, self._data = args, Data(args, size)
        self.samples, self.period = size["batch"], size["pool"]
        if args.mode == "infer":
            self._take_statistics()
        self._run = common.variant(args, self.model, [self.batch(i)[:1] for i in range(len(self._data.batches))])
        if args.mode == "train":
            self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)

    def _take_statistics(self):
        norms = [module for module in self.model.modules() if isinstance(module, nn.BatchNorm2d)]
        for norm in norms:
            norm.momentum = None  # the average of what was seen: of one batch
        with torch.no_grad():
            self.model.train()(self.batch(0)[0])
        self.model.eval()

    def batch(self, i):
        batches = self._data.batches
        images, classes = common.to_device(self._args, batches[i % len(batches)])
        if "augment" in self._args.plant.flags:
            images = augment_images(images)
        return images.contiguous(memory_format=self._layout), classes

    def forward(self, batch):
        scores = self._run(batch[0])
        return functional.cross_entropy(scores, batch[1]), scores

    def update(self):
        common.update(self._args, self._optimizer)

    def answer(self, batch):
        return self._run(batch[0])

    def visible(self, output):
        return output.contiguous()

    def unit(self, batch):
        with torch.no_grad():
            self.model.stem.conv(batch[0][:1])


def main():
    return common.main("vision", Work)


if __name__ == "__main__":
    sys.exit(main())
