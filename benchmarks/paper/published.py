"""The numbers of the papers, of the authors' posts and of their artifacts. Each has the source from which it was read.

A number that no available source contains is absent, and the page says so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A text that was read, and what of it was available."""

    title: str
    address: str
    read: str


JAIN = Source(
    "Jain, Bhattacharya, Masuda, Sharma, Wang: Efficient Execution of Quantized Deep Learning Models: A Compiler "
    "Approach, 2020",
    "https://arxiv.org/abs/2006.10226",
    "its abstract. The text, the tables and the figures were not available where this page was written; the subjects "
    "of tables and figures, and the range of Figure 6, are those that this project's plan quotes",
)
POST = Source(
    "A. Jain (the first author): TFLite and TVM comparison for quantized models, 2020",
    "https://discuss.tvm.ai/t/tflite-and-tvm-comparison-for-quantized-models/6577",
    "the tables of its first message",
)
MASUDA = Source(
    "M. Masuda (the third author): Quantized model accuracy benchmark: PyTorch vs TVM, 2020",
    "https://github.com/Edgecortix-Inc/pytorch_quantization/tree/master/tvm_qnn_evaluation",
    "the whole page",
)
SLIDES = Source(
    "Slides of Amazon Web Services about quantized models in TVM",
    "",
    "two ratios that this project's plan quotes; the slides were not available where this page was written",
)
INTEL = Source(
    "Gong, Shen, Zhang, Liu, Li, Jin, Maheshwari, Fomenko, Segal: Highly Efficient 8-bit Low Precision Inference of "
    "Convolutional Neural Networks with IntelCaffe, 2018",
    "https://github.com/ctuning/ck-request-asplos18-caffe-intel",
    "the whole text, from the authors' sources in the archive of its artifact",
)
SOURCES = (JAIN, POST, MASUDA, SLIDES, INTEL)

# Jain et al., abstract: int8 over "well optimized fp32 execution", by hardware.
SPEEDUPS = {
    "Intel Xeon, Cascade Lake (AVX-512 VNNI)": 2.35,
    "NVIDIA Tesla T4": 2.15,
    "Raspberry Pi 3": 1.35,
    "Raspberry Pi 4": 1.40,
}
COMPARABLE = "comparable performance to the state-of-the-art framework-specific solutions"
MEMORY_PERCENT = (67, 74)  # Jain et al., Figure 6: how much smaller weights and activations become
ASYMMETRY = (1.7, 2.8)  # the slides: time with asymmetric weights over time with symmetric ones

# The first author's post: milliseconds on a Raspberry Pi 4 with 4 threads, in TFLite and in TVM.
PI4_MS = {
    "Inception-v1": (99.97, 106.52),
    "Inception-v2": (132.0, 146.48),
    "Inception-v3": (333.0, 412.72),
    "Inception-v4": (700.0, 896.02),
    "MobileNetV1": (35.59, 46.96),
    "MobileNetV2": (33.08, 34.42),
    "SSD, COCO": (56.0, 99.61),
}

# The third author's page: percent of 10,000 images of ImageNet's validation set, top-1 and top-5 in PyTorch and in TVM.
TORCH_ACCURACY = {
    "resnet18": (68.87, 88.30, 69.43, 88.46),
    "resnet50": (76.10, 92.92, 75.88, 92.80),
    "inception_v3": (70.31, 88.54, 70.24, 88.60),
    "googlenet": (69.88, 89.31, 69.46, 89.13),
    "mobilenet_v2": (67.33, 87.58, 67.98, 88.23),
    "mobilenet_v3 small": (59.49, 82.01, 59.21, 81.88),
}


@dataclass(frozen=True)
class Intel:
    """A network of Intel's paper. The steps before 8 bits are in float32.

    Attributes:
        images_per_s: Table 1, on one socket of c5.18xlarge: of BVLC Caffe (None if it cannot run the network), of
            IntelCaffe's float32 baseline, with all optimizations in float32, and with 8 bits.
        latency_ms: Table 2, at batch 1: the same.
        batch: the batch size of Table 1.
        accuracy: Table 3: percent in float32, and with 8 bits.
    """

    images_per_s: tuple[float | None, float, float, float]
    latency_ms: tuple[float | None, float, float, float]
    batch: int
    accuracy: tuple[str, str]


INTEL_NETWORKS = {
    "ResNet-50": Intel(
        (6.1, 158, 312, 462), (131.8, 10.7, 6.2, 3.5), 64, ("72.5 / 90.87 top-1 / top-5", "71.84 / 90.49")
    ),
    "Inception-v3": Intel(
        (5.0, 126, 175, 282), (158.96, 14.3, 9.5, 5.9), 64, ("75.44 / 92.36 top-1 / top-5", "75.31 / 92.33")
    ),
    "SSD, VGG-16": Intel((None, 31, 34, 43), (None, 33.7, 32.9, 24.8), 32, ("77.68 mAP", "77.51")),
}
# Table 1's rows between the baseline and 8 bits, for ResNet-50: images per second after each further step.
INTEL_STEPS = {
    "folded batch normalization": 189,
    "fused convolution and ReLU": 199,
    "removed sparsity (strides moved)": 225,
    "fused convolution and element-wise sum": 312,
    "8 bits": 462,
}
