/* SPDX-License-Identifier: MIT */
/* ggml's Vulkan backend names three types of Vulkan's headers 1.3.272. Debian 12 has 1.3.239: this file stands before its header and adds
 * them. ggml uses them for one setting of a layer that looks for faults in programs; a driver without that layer passes them over. */
#pragma once
#include_next <vulkan/vulkan.hpp>

#if VK_HEADER_VERSION < 272
namespace vk {

enum class LayerSettingTypeEXT { eBool32 = 0 };

struct LayerSettingEXT {
    const char *pLayerName;
    const char *pSettingName;
    LayerSettingTypeEXT type;
    uint32_t valueCount;
    const void *pValues;
};

struct LayerSettingsCreateInfoEXT {
    LayerSettingsCreateInfoEXT(const std::vector<LayerSettingEXT> &settings)
        : settingCount(static_cast<uint32_t>(settings.size())), pSettings(settings.data())
    {
    }

    VkStructureType sType = static_cast<VkStructureType>(1000496000); /* ..._LAYER_SETTINGS_CREATE_INFO_EXT */
    const void *pNext = nullptr;
    uint32_t settingCount;
    const LayerSettingEXT *pSettings;
};

} // namespace vk
#endif
