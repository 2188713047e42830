// SPDX-License-Identifier: Apache-2.0
// Opens cuDNN, as dnn_library.h says it. Its parts (libcudnn_ops, libcudnn_cnn, ...) it finds by
// itself, beside it.
#include "reference_models/cuda/dnn_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DNN_HINT "UPGATE_CUDNN=path of libcudnn.so.9"

static void *dnn_library_find(const char **ret_tried, char *path, size_t size)
{
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so.8"},
                             *const places[] = {"lib64", "lib"};
    const char *asked = getenv("UPGATE_CUDNN"), *home = getenv("CUDA_HOME");
    void *library = NULL;
    *ret_tried = "libcudnn.so.9 and .8 of the loader's path";
    if (asked && *asked) {
        *ret_tried = "that of UPGATE_CUDNN";
        return dlopen(asked, RTLD_NOW | RTLD_LOCAL);
    }
    for (size_t i = 0; home && *home && i < 4 && !library; i++) {
        *ret_tried =
                "libcudnn.so.9 and .8 in lib64/ and lib/ of CUDA_HOME, and of the loader's path";
        int length = snprintf(path, size, "%s/%s/%s", home, places[i % 2], names[i / 2]);
        library = length > 0 && (size_t)length < size ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    }
    for (size_t i = 0; i < 2 && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

int dnn_library_open(const struct dnn_library **ret, struct error *err)
{
    static struct dnn_library own;
    static bool opened;
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"cudnnGetVersion", &own.version}, {"cudnnGetErrorString", &own.sentence},
            {"cudnnCreate", &own.create}, {"cudnnDestroy", &own.destroy},
            {"cudnnSetStream", &own.set_stream}, {"cudnnCreateTensorDescriptor", &own.tensor_new},
            {"cudnnDestroyTensorDescriptor", &own.tensor_free},
            {"cudnnSetTensor4dDescriptor", &own.tensor_set},
            {"cudnnCreateFilterDescriptor", &own.filter_new},
            {"cudnnDestroyFilterDescriptor", &own.filter_free},
            {"cudnnSetFilter4dDescriptor", &own.filter_set},
            {"cudnnCreateConvolutionDescriptor", &own.conv_new},
            {"cudnnDestroyConvolutionDescriptor", &own.conv_free},
            {"cudnnSetConvolution2dDescriptor", &own.conv_set},
            {"cudnnSetConvolutionMathType", &own.conv_math},
            {"cudnnFindConvolutionForwardAlgorithmEx", &own.find_forward},
            {"cudnnFindConvolutionBackwardDataAlgorithmEx", &own.find_input},
            {"cudnnFindConvolutionBackwardFilterAlgorithmEx", &own.find_weight},
            {"cudnnConvolutionForward", &own.forward}, {"cudnnConvolutionBackwardData", &own.input},
            {"cudnnConvolutionBackwardFilter", &own.weight},
            {"cudnnConvolutionBackwardBias", &own.bias}, {"cudnnAddTensor", &own.add},
            {"cudnnBatchNormalizationForwardTraining", &own.norm_train},
            {"cudnnBatchNormalizationForwardInference", &own.norm_serve},
            {"cudnnBatchNormalizationBackward", &own.norm_backward},
            {"cudnnCreatePoolingDescriptor", &own.pool_new},
            {"cudnnDestroyPoolingDescriptor", &own.pool_free},
            {"cudnnSetPooling2dDescriptor", &own.pool_set},
            {"cudnnPoolingForward", &own.pool_forward},
            {"cudnnPoolingBackward", &own.pool_backward}};
    char path[4096];
    const char *tried, *why;
    *ret = &own;
    if (opened)
        return 0;
    void *library = dnn_library_find(&tried, path, sizeof path);
    if (!library) {
        why = dlerror();
        return error_set(err, -ENOSYS, "no cuDNN: tried %s: %s; " DNN_HINT, tried,
                why ? why : "a path that is too long");
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (!found)
            return error_set(err, -ENOSYS, "this cuDNN has no %s: 8 and 9 have it; " DNN_HINT,
                    symbols[i].name);
        memcpy(symbols[i].to, &found, sizeof found);
    }
    opened = true;
    return 0;
}
